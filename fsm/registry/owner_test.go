package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const cut = 15_000 // ms of silence

// contactDC2 notes a contact with dc2 now.
func (g *rig) contactDC2() { g.apply(fromDC2, Contact{DC: "dc2", Cut: cut}) }

func TestOwnerIsTheDatacenterOfTheLastRegistration(t *testing.T) {
	tests := []struct {
		name   string
		first  Origin
		origin Origin
		op     Op
		want   string
	}{
		{"client", fromDC2, FromClient, Register{instance(orders1, Up, 100)}, ""},
		{"client, of an older one", fromDC2, FromClient, Register{instance(orders1, Up, 99)}, ""},
		{"Eureka server", FromClient, FromEureka, Register{instance(orders1, Up, 101)}, "eureka"},
		{"Eureka server, the same", FromClient, FromEureka, Register{instance(orders1, Up, 100)}, ""},
		{"Eureka server, an older one", FromClient, FromEureka, Register{instance(orders1, Up, 99)}, ""},
		{"datacenter, newer", FromClient, fromDC2, replicaAt(Up, 101), "dc2"},
		{"datacenter, older", FromClient, fromDC2, replicaAt(Up, 99), ""},
		{"datacenter, the same", FromClient, fromDC2, replicaAt(Up, 100), ""},
		{"datacenter, the same of a third", FromEureka, fromDC2, replicaAt(Up, 100), "dc2"},
		{"datacenter, newer of an instance that is not its own", FromClient, fromDC2, replicaAt(Up, 101, ownedBy("dc1")), ""},
		{"datacenter taken for the owner, the same of this one's", fromDC2, fromDC2, replicaAt(Up, 100, ownedBy(Here)), ""},
		{"datacenter taken for the owner, an older of this one's", fromDC2, fromDC2, replicaAt(Up, 99, ownedBy(Here)), "dc2"},
		{"another datacenter, the same of this one's", FromEureka, fromDC2, replicaAt(Up, 100, ownedBy(Here)), "eureka"},
		{"node, newer", FromClient, fromNode, replicaAt(Up, 101, ownedBy("dc3")), "dc3"},
		{"node, its own", fromDC2, fromNode, replicaAt(Up, 100), ""},
		{"override elsewhere", FromClient, fromDC2, replicaAt(Up, 100, overriddenTo(Down, 1)), ""},
		{"override here", fromDC2, FromClient, SetOverride{Key: orders1, Status: Down}, "dc2"},
		{"renewal here", fromDC2, FromClient, Renew{Key: orders1}, "dc2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.apply(tt.first, Register{instance(orders1, Up, 100)})
			h := g.lease(orders1).Handle
			g.apply(tt.origin, tt.op)
			l := g.lease(orders1)
			expect.That(t, l.Owner == tt.want && g.Owner(h) == tt.want && l.Local() == (tt.want == ""), "owner %q, want %q", l.Owner, tt.want)
			expect.OK(t, check(g.Registry))
		})
	}
}

// The interval is 30 s: a renewal counts for one minute.
func TestOwnerBecomesThisDatacenterByRenewalsItsOwnerDoesNotSee(t *testing.T) {
	tests := []struct {
		name  string
		after func(g *rig)
		taken bool
	}{
		{"no link is known", func(g *rig) { g.pass(80_000) }, false},
		{"the owner renewed it lately", func(g *rig) {
			g.contactDC2()
			g.pass(60_000)
			g.contactDC2()
		}, false},
		{"the owner has not renewed it for two intervals", func(g *rig) {
			g.contactDC2()
			g.pass(60_001)
			g.contactDC2()
		}, true},
		{"the owner renewed it since", func(g *rig) {
			g.contactDC2()
			g.pass(60_001)
			g.contactDC2()
			g.apply(fromDC2, Renew{Key: orders1, Life: 1, LastDirty: 100, Age: 1000})
		}, false},
		{"the link is not cut yet", func(g *rig) {
			g.contactDC2()
			g.pass(cut)
		}, false},
		{"the link is cut", func(g *rig) {
			g.contactDC2()
			g.pass(cut + 1)
		}, true},
		{"another link is cut", func(g *rig) {
			g.apply(FromEureka, Contact{DC: "eureka", Cut: cut})
			g.pass(cut + 1)
			g.contactDC2()
		}, false},
	}
	for _, byHandle := range []bool{false, true} {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				g := newRig(t)
				op := Renew{Key: orders1}
				if h := g.apply(fromDC2, replicaAt(Up, 100)).Handle; byHandle {
					op = Renew{Handle: h}
				}
				tt.after(g)
				res := g.client(op)
				l := g.lease(orders1)
				expect.That(t, l.Local() == tt.taken && (res.Index != 0) == tt.taken && ((l.ByClient == res.Index) == tt.taken || !tt.taken),
					"owner %q, result %+v, changed at %d by a client, want it taken over: %t", l.Owner, res, l.ByClient, tt.taken)
				events := g.View().History(orders1)
				last := events[len(events)-1]
				expect.That(t, (last.Kind == EventOwned) == tt.taken, "last event %v, want taken over: %t", last.Kind, tt.taken)
				expect.OK(t, check(g.Registry))
			})
		}
	}
}

// After a client was away at another datacenter and has come back, only one of the two owns it.
func TestOwnerBecomesTheRemoteDatacenterThatRenews(t *testing.T) {
	renewed := Renew{Key: orders1, Life: 1, LastDirty: 100}
	tests := []struct {
		name   string
		linked bool
		silent int64 // ms since the client's renewal here
		op     Op
		given  bool
	}{
		{"renewed there, lately here", true, 60_000, renewed, false},
		{"renewed there, not here", true, 60_001, renewed, true},
		{"renewed there long ago", true, 80_000, Renew{Key: orders1, Life: 1, LastDirty: 100, Age: 80_001}, false},
		{"renewed there, no link known", false, 60_001, renewed, false},
		{"claimed, lately renewed here", true, 60_000, replicaAt(Up, 100), false},
		{"claimed, not renewed here", true, 60_001, replicaAt(Up, 100), true},
		{"claimed, renewed neither here nor there", true, 60_001, replicaAt(Up, 100, ageOf(60_001)), false},
		{"told of, not claimed", true, 60_001, replicaAt(Up, 100, ownedBy("dc1")), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, Up, 100))
			if tt.linked {
				g.contactDC2()
			}
			g.pass(tt.silent)
			res := g.apply(fromDC2, tt.op)
			l := g.lease(orders1)
			need.That(t, (l.Owner == "dc2") == tt.given && (res.Index != 0) == tt.given, "owner %q, result %+v, want it given: %t", l.Owner, res, tt.given)
			events := g.View().History(orders1)
			if last := events[len(events)-1]; tt.given && (last.Kind != EventCeded || last.Origin != fromDC2 || l.ByRemote != res.Index) {
				t.Errorf("last event %+v, changed at %d by a remote datacenter, want it given to dc2 at %d", last, l.ByRemote, res.Index)
			}
			expect.OK(t, check(g.Registry))
		})
	}
}

// A node's client is a client of the datacenter; what it tells of another's instance its owner's client did.
func TestOwnerIsCreditedWithRenewalsThatANodeSends(t *testing.T) {
	state := func(g *rig) LeaseState { return g.Freeze().Leases[0] }
	for _, owner := range []string{"", "dc2"} {
		g := newRig(t)
		g.apply(fromNode, replicaAt(Up, 100, ownedBy(owner)))
		g.pass(10_000)
		g.apply(fromNode, Renew{Key: orders1, Life: 1, LastDirty: 100, Age: 1000})
		want := LeaseState{Client: g.now.Lease - 1000}
		if owner != "" {
			want = LeaseState{Remote: want.Client}
		}
		got := state(g)
		expect.That(t, got.Client == want.Client && got.Remote == want.Remote,
			"owner %q: client %d, remote %d, want %d, %d", owner, got.Client, got.Remote, want.Client, want.Remote)
	}
}

// A registration counts as a renewal by the client, whichever datacenter was the owner before.
func TestOwnerRuleCountsARegistrationAsARenewal(t *testing.T) {
	tests := []struct {
		name           string
		origin         Origin
		op             Op
		client, remote int64
	}{
		{"client", FromClient, Register{instance(orders1, Up, 101)}, 5000, 1000},
		{"datacenter", fromDC2, replicaAt(Up, 101), 0, 5000},
		{"node, taken over there", fromNode, replicaAt(Up, 100), 5000, 1000},
	}
	for _, tt := range tests {
		g := newRig(t)
		g.apply(fromDC2, replicaAt(Up, 100))
		g.pass(4000)
		g.apply(tt.origin, tt.op)
		s := g.Freeze().Leases[0]
		expect.That(t, s.Client == tt.client && s.Remote == tt.remote,
			"%s: by a client at %d, elsewhere at %d, want %d, %d", tt.name, s.Client, s.Remote, tt.client, tt.remote)
	}
}

// Only the owner's datacenter counts an instance for self-preservation.
func TestOwnerElsewhereIsNotCountedForSelfPreservation(t *testing.T) {
	g := newRig(t)
	g.contactDC2()
	g.apply(fromDC2, replicaAt(Up, 100))
	f := g.View().Freshness(g.now.Lease)
	expect.That(t, f.Leases == 0, "got %+v, want none", f)
	g.pass(cut + 1)
	g.client(Renew{Key: orders1})
	f = g.View().Freshness(g.now.Lease)
	expect.That(t, f.Leases == 1, "taken over: got %+v, want one", f)
}

// Another datacenter has an instance that was canceled here, and takes this one for its owner. If this one
// took the other for the owner, too, neither would compare it, and what was lost on the way would stay lost.
func TestOwnerHereIsAccepted(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.client(Cancel{orders1})
	g.apply(fromDC2, Replica{Instance: instance(orders1, Up, 101), Life: 1, Owner: Here})
	l := g.lease(orders1)
	expect.That(t, l.Local(), "it belongs to %q, want it to be this datacenter's", l.Owner)
	g.apply(fromDC2, Replica{Instance: instance(orders2, Up, 101), Life: 1, Owner: "dc3"})
	l = g.lease(orders2)
	expect.That(t, l.Owner == "dc2", "it belongs to %q, want dc2, which has it", l.Owner)
}
