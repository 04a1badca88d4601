package registry

import (
	"fmt"
	"math"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const cut = 15_000 // ms of silence

// contactDC2 records a contact with dc2 now.
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
			g := withOrders(t)
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

// A node's clients are clients of the datacenter; the renewals of another's instance that it passes on are by the
// owner's clients.
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

// A registration counts as a renewal by the client, whichever datacenter owned the instance before.
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

// Another datacenter has an instance that was canceled here, and takes this one for its owner. If this one took the
// other for the owner too, neither would compare it, and anything lost on the way would stay lost.
func TestOwnerHereIsAccepted(t *testing.T) {
	g := withOrders(t)
	g.client(Cancel{orders1})
	g.apply(fromDC2, Replica{Instance: instance(orders1, Up, 101), Life: 1, Owner: Here})
	l := g.lease(orders1)
	expect.That(t, l.Local(), "it belongs to %q, want it to be this datacenter's", l.Owner)
	g.apply(fromDC2, Replica{Instance: instance(orders2, Up, 101), Life: 1, Owner: "dc3"})
	l = g.lease(orders2)
	expect.That(t, l.Owner == "dc2", "it belongs to %q, want dc2, which has it", l.Owner)
}

func TestLinkKnowsWhenThePresentContactBegan(t *testing.T) {
	contact := func(age int64) Contact { return Contact{DC: "dc2", Cut: 15_000, Age: age} }
	tests := []struct {
		name   string
		passed []int64 // ms before each contact
		ages   []int64
		want   Link
	}{
		{"first", []int64{0}, []int64{0}, Link{"dc2", 1000, 1000, 15_000}},
		{"again in time", []int64{0, 15_000}, []int64{0, 0}, Link{"dc2", 16_000, 1000, 15_000}},
		{"again after it was cut", []int64{0, 15_001}, []int64{0, 0}, Link{"dc2", 16_001, 16_001, 15_000}},
		{"passed on, newer", []int64{0, 5000}, []int64{0, 1000}, Link{"dc2", 5000, 1000, 15_000}},
		{"passed on, older", []int64{0, 5000}, []int64{0, 6000}, Link{"dc2", 1000, 1000, 15_000}},
		{"passed on from long ago", []int64{0}, []int64{math.MaxInt64}, Link{"dc2", 1000 - maxAgo, 1000 - maxAgo, 15_000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			for i, ms := range tt.passed {
				g.pass(ms)
				expect.Equal(t, g.apply(fromDC2, contact(tt.ages[i])), (Result{}), "got")
			}
			got, ok := g.View().Link("dc2")
			expect.That(t, ok && got == tt.want, "got %+v, %t, want %+v", got, ok, tt.want)
		})
	}
}

func TestTimingIsByTheNewestMessageOfAnIncarnation(t *testing.T) {
	g := newRig(t)
	g.apply(fromNode, Contact{Sender: "n2", Incarnation: 7, Clock: 5000})
	g.apply(fromNode, Contact{Sender: "n2", Incarnation: 7, Clock: 4000})
	g.pass(20_000)
	const minutes = 60_000
	tests := []struct {
		name        string
		before      []Contact
		incarnation uint64
		clock       int64
		late, ahead int64
	}{
		{"newer", nil, 7, 6000, 0, 0},
		{"the same", nil, 7, 5000, 0, 0},
		{"older", nil, 7, 3000, 2000, 0},
		{"of an incarnation that is not known", nil, 8, 1, 0, 0},
		{"of another sender", nil, 9, 1, 0, 0},
		{"ahead, within the margin", nil, 7, 5000 + 20_000 + 10*minutes, 0, 0},
		{"ahead", nil, 7, 5001 + 20_000 + 10*minutes, 0, 1 + 10*minutes},
		{"while another spoke far ahead in its name", []Contact{{Sender: "n2", Incarnation: 8, Clock: 1 << 40}}, 7, 25_000, 0, 0},
		{"held up on its way over a new start", []Contact{{Sender: "n2", Incarnation: 8, Clock: 1}}, 7, 6000, 19_000, 0},
		{"after a clock that cannot be", []Contact{{Sender: "n2", Incarnation: 7, Clock: 1 << 40}}, 7, 5000, 0, 0},
		{"after one of another datacenter's", []Contact{{DC: "dc2", Sender: "n2", Incarnation: 7, Clock: 9000}}, 7, 5000, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := need.Got(Thaw(g.Freeze()))(t)
			for _, op := range tt.before {
				h.Apply(g.now, 1, fromNode, op)
			}
			late, ahead := h.View().Timing("", "n2", tt.incarnation, tt.clock, g.now)
			expect.That(t, late == tt.late && ahead == tt.ahead, "late by %d and ahead by %d, want %d and %d", late, ahead, tt.late, tt.ahead)
		})
	}
}

// Time that passed only on the wall clock counts: this side was down, or had no leader.
func TestTimingAllowsForATimeWhenTheLeaseClockStoodStill(t *testing.T) {
	g := newRig(t)
	g.apply(fromNode, Contact{Sender: "n2", Incarnation: 7, Clock: 5000})
	const hours = 60 * 60 * 1000
	g.now.Wall += 10 * hours
	late, ahead := g.View().Timing("", "n2", 7, 10*hours, g.now)
	expect.That(t, late == 0 && ahead == 0, "late by %d and ahead by %d, want neither", late, ahead)
}

func TestSendersSilentLongestAreDroppedFirst(t *testing.T) {
	g := newRig(t)
	for n := range uint64(maxSenders + 100) {
		g.pass(1)
		g.apply(fromNode, Contact{Sender: "n2", Incarnation: 7, Clock: int64(n)})
		g.apply(fromNode, Contact{Sender: "n2", Incarnation: 1000 + n, Clock: 1})
		g.apply(fromNode, Contact{Sender: fmt.Sprint("made-up-", n), Clock: 1})
	}
	_, _, ok := g.View().Sender("", "n2", 7)
	expect.That(t, ok, "an incarnation that was heard all the time is forgotten")
	n := len(g.View().Senders())
	expect.That(t, n <= maxSenders, "%d are kept, want at most %d", n, maxSenders)
	n = len(g.servers.incarnations(Sender{Name: "n2"}))
	expect.That(t, n <= maxIncarnations, "%d incarnations are kept, want at most %d", n, maxIncarnations)
}

func TestLinksSilentLongestAreDroppedFirst(t *testing.T) {
	g := newRig(t)
	for n := range 2 * maxLinks {
		g.pass(1)
		g.apply(fromDC2, Contact{DC: "dc2", Cut: 15_000})
		g.apply(fromNode, Contact{DC: fmt.Sprint("made-up-", n), Cut: 90_000})
	}
	_, ok := g.View().Link("dc2")
	expect.That(t, ok, "a link that was heard all the time is forgotten")
	expect.Equal(t, len(g.Freeze().Links), maxLinks, "links that are kept:")
}

func TestForgetSenderMakesTheNextMessageTheFirst(t *testing.T) {
	g := newRig(t)
	for n := range uint64(3) {
		g.apply(fromNode, Contact{Sender: "n2", Incarnation: n, Clock: 1_000_000})
		g.apply(fromDC2, Contact{DC: "dc2", Sender: "n2", Incarnation: n, Clock: 1_000_000, Cut: 1})
	}
	g.apply(fromNode, Contact{Sender: "n3", Clock: 1_000_000})
	before := g.View()
	link, _ := before.Link("dc2")
	expect.Equal(t, g.client(ForgetSender{Sender: "n2"}), Result{}, "done, and takes no index: got")
	for _, dc := range []string{"", "dc2"} {
		late, ahead := g.View().Timing(dc, "n2", 1, 5, g.now)
		expect.That(t, late == 0 && ahead == 0, "of %q: late by %d and ahead by %d, want neither", dc, late, ahead)
	}
	late, _ := g.View().Timing("", "n3", 0, 5, g.now)
	expect.That(t, late == 999_995, "another sender's message is late by %d, want 999995", late)
	if after, ok := g.View().Link("dc2"); !ok || after != link || len(g.View().Senders()) != 1 || len(before.Senders()) != 7 {
		t.Errorf("got link %+v and senders %+v, want those of others as before", after, g.View().Senders())
	}
	for _, name := range []string{"n2", "n4", ""} {
		res := g.client(ForgetSender{Sender: name})
		expect.That(t, res.Outcome == NotFound, "%q, of which nothing is known: got %+v, want NotFound", name, res)
	}
}

// The duration is 90 s, the interval 30 s.
func TestLeaseOfAnotherDatacenterEndsLater(t *testing.T) {
	tests := []struct {
		name   string
		owner  Origin
		before func(g *rig)
		want   int64 // the registration is at 1000
	}{
		{"own", FromClient, func(*rig) {}, 91_000},
		{"no link", fromDC2, func(*rig) {}, 121_000},
		{"link since before", fromDC2, func(g *rig) { g.contactDC2() }, 121_000},
		{"link again since later", fromDC2, func(g *rig) {
			g.contactDC2()
			g.pass(60_000)
			g.contactDC2()
		}, 151_000},
		{"another link again since later", fromDC2, func(g *rig) {
			g.pass(60_000)
			g.apply(FromEureka, Contact{DC: "eureka", Cut: cut})
		}, 121_000},
		{"established later", fromDC2, func(g *rig) {
			g.pass(100_000)
			g.Advance(g.now)
			g.Establish(Epoch{Term: 1, Index: 1}, "c")
		}, 126_000},
		{"two durations", fromDC2, func(g *rig) {
			s := DefaultSettings()
			s.DoubledLease = true
			g.Configure(s)
			g.pass(1)
			g.apply(fromDC2, Renew{Key: orders1, Life: 1})
		}, 211_001},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.apply(tt.owner, Register{instance(orders1, Up, 100)})
			tt.before(g)
			expect.Equal(t, g.View().Ends(g.lease(orders1)), tt.want, "ends at")
			due := g.Expired(tt.want, 10)
			expect.That(t, len(due) == 0, "expired at its end: %v", due)
			due = g.Expired(tt.want+1, 10)
			expect.That(t, len(due) == 1, "expired after its end: %v, want it", due)
		})
	}
}

func TestPeerStateKeepsTheNewestCursor(t *testing.T) {
	g := newRig(t)
	for range 9 {
		g.register(instance(orders1, Up, 100))
	}
	view := g.View()
	g.contactDC2()
	linked := g.View()
	g.pass(1)
	g.contactDC2()
	l, _ := linked.Link("dc2")
	expect.That(t, l.LastContact != g.now.Lease, "a view's link changed")
	steps := []struct {
		name string
		op   Op
		want PeerState
	}{
		{"cursor 0 is one", AckPeer{"dc2", 0}, PeerState{Name: "dc2", Known: true}},
		{"forward", AckPeer{"dc2", 7}, PeerState{Name: "dc2", Known: true, Cursor: 7}},
		{"never back", AckPeer{"dc2", 5}, PeerState{Name: "dc2", Known: true, Cursor: 7}},
		{"not ahead of the changes", AckPeer{"dc2", 99}, PeerState{Name: "dc2", Known: true, Cursor: 9}},
		{"paused", PausePeer{"dc2", true, Act{Author: "ann", Reason: "work"}}, PeerState{Name: "dc2", Known: true, Cursor: 9, Paused: true, By: Act{Author: "ann", Reason: "work"}, Since: g.now}},
		{"paused already", PausePeer{"dc2", true, Act{Author: "bob"}}, PeerState{Name: "dc2", Known: true, Cursor: 9, Paused: true, By: Act{Author: "ann", Reason: "work"}, Since: g.now}},
		{"resumed", PausePeer{"dc2", false, Act{Author: "bob"}}, PeerState{Name: "dc2", Known: true, Cursor: 9, By: Act{Author: "bob", Reason: ""}, Since: g.now}},
	}
	for _, s := range steps {
		expect.Equal(t, g.client(s.op), (Result{}), "%s:", s.name)
		expect.Equal(t, g.View().Peer("dc2"), s.want, "%s: got", s.name)
	}
	expect.Equal(t, g.View().Peer("dc3"), (PeerState{Name: "dc3"}), "another peer: got")
	expect.Equal(t, view.Peer("dc2"), (PeerState{Name: "dc2"}), "a view changed: got")
}

func TestThawRefusesImpossibleLinksSendersAndPeers(t *testing.T) {
	refusesLies(t, func(g *rig) {
		g.register(instance(orders1, Up, 100))
		g.contactDC2()
		g.apply(FromEureka, Contact{DC: "eureka", Sender: "n2", Cut: 1})
		g.client(AckPeer{"dc2", 1})
	}, []lie{
		{"link without a name", func(f *Frozen) { f.Links[0].DC = "" }, `link "" after ""`},
		{"links' order", func(f *Frozen) { f.Links[0].DC = "x" }, `link "eureka" after "x"`},
		{"link twice", func(f *Frozen) { f.Links[0].DC = "eureka" }, `link "eureka" after "eureka"`},
		{"heard in the future", func(f *Frozen) { f.Links[0].LastContact = 1001 }, "last at 1001"},
		{"heard before it began", func(f *Frozen) { f.Links[0].Since = 1001 }, "heard since 1001"},
		{"cut before it was heard", func(f *Frozen) { f.Links[0].Cut = -1 }, "cut after -1"},
		{"sender without a name", func(f *Frozen) { f.Senders[0].Name = "" }, `sender ""`},
		{"peer without a name", func(f *Frozen) { f.Peers[0].Name = "" }, `peer ""`},
		{"cursor ahead", func(f *Frozen) { f.Peers[0].Cursor = 2 }, "cursor 2"},
		{"cursor that is none", func(f *Frozen) { f.Peers[0].Known = false }, "known: false"},
		{"paused in the future", func(f *Frozen) { f.Peers[0].Since.Lease = 1001 }, "resumed at 1001"},
		{"told later than changed", aboutLease(0, func(l *Lease) { l.ByRemote = 2 }), "a part of it changed at 2"},
		{"renewed by a client later", func(f *Frozen) { f.Leases[0].Client = 1001 }, "a client or a replicator renewed it at 1001"},
		{"renewed elsewhere later", func(f *Frozen) { f.Leases[0].Remote = 1001 }, "a client or a replicator renewed it at 1001"},
	})
}

// doubting returns dc1 with orders-1, renewed a second before its clock stood still for an unknown time.
func doubting(t *testing.T) *rig {
	g := withOrders(t)
	g.pass(1000)
	g.Doubt()
	return g
}

func TestHearsayIsNoGroundToKeepWhatAnotherNodeSawEnd(t *testing.T) {
	evicted := Remove{Key: orders1, Kind: Evicted, Life: 1, LastDirty: 100, Age: 60_000}
	g := doubting(t)
	res := g.apply(fromNode, evicted)
	expect.That(t, res.Outcome == Done && res.Index != 0, "removal of what is known by hearsay: %+v, want it done", res)
	g = doubting(t)
	g.client(Renew{Key: orders1, LastDirty: 100})
	res = g.apply(fromNode, evicted)
	expect.That(t, res.Outcome == Older, "removal of what was renewed since: %+v, want it refused", res)
	g = doubting(t)
	res = g.apply(fromDC2, evicted)
	expect.That(t, res.Outcome == Older, "another datacenter's removal of this one's instance: %+v, want it refused", res)
}

func TestHearsayIsSentWithAnAgeThatRenewsNothing(t *testing.T) {
	g := doubting(t)
	told := g.View().ReplicaOf(g.lease(orders1), g.now.Lease)
	need.Equal(t, told.Age, UnknownAge, "told with an age of")
	other := newRig(t)
	other.pass(5000)
	res := other.apply(fromNode, told)
	expect.That(t, res.Outcome == Refused, "a cluster that has it not: %+v, want it refused", res)
	other.register(instance(orders1, Up, 100))
	before := other.renewed(other.lease(orders1))
	other.pass(5000)
	other.apply(fromNode, told)
	expect.Equal(t, other.renewed(other.lease(orders1)), before, "a node that has it: renewed at")
	g.client(Renew{Key: orders1, LastDirty: 100})
	expect.Equal(t, g.View().ReplicaOf(g.lease(orders1), g.now.Lease).Age, 0, "after a renewal it is told with an age of")
}

// A version is not a renewal: decisions from before the node stood still are sent, and accepted, as ever.
func TestHearsayKeepsItsVersion(t *testing.T) {
	g := withOrders(t)
	other := newRig(t)
	other.register(instance(orders1, Up, 100))
	g.client(SetOverride{Key: orders1, Status: OutOfService})
	g.Doubt()
	other.apply(fromNode, g.View().ReplicaOf(g.lease(orders1), g.now.Lease))
	expect.Equal(t, other.status(orders1), OutOfService, "got")
	g.apply(fromNode, replicaAt(Up, 101, ageOf(UnknownAge)))
	expect.That(t, g.View().Age(g.lease(orders1), g.now.Lease) == UnknownAge, "a newer version that is hearsay made a renewal of hearsay")
}

// A node may have acknowledged something and gone down before sending it to another node. It must not be lost, but
// other nodes must not pass it on as renewed either.
func TestHearsayAboutAnUnknownInstanceIsEnteredForOneLease(t *testing.T) {
	g := newRig(t)
	g.WithoutConsensus()
	g.apply(fromNode, replicaAt(Up, 100, ageOf(UnknownAge)))
	l := g.lease(orders1)
	expect.Equal(t, g.renewed(l), g.now, "its lease began at")
	expect.Equal(t, g.View().Age(l, g.now.Lease), UnknownAge, "it is told with an age of")
	for _, kind := range []ChangeKind{Evicted, Canceled} {
		g.apply(fromNode, Remove{Key: orders1, Kind: kind, Life: 1, LastDirty: 100, Age: 60_000})
		res := g.apply(fromNode, replicaAt(Up, 100, ageOf(UnknownAge)))
		expect.That(t, res.Outcome == Refused, "after a removal of kind %v: %+v, want it refused", kind, res)
	}
	res := g.apply(fromNode, replicaAt(Up, 101, ageOf(UnknownAge)))
	expect.That(t, res.Outcome == Done, "a newer registration: %+v, want it entered", res)
}

// The name belongs to that principal in every incarnation, and after a restart, until it is freed.
func TestSendersNameBelongsToThePrincipalThatUsedItFirst(t *testing.T) {
	g := newRig(t)
	owner := func(dc, want string) {
		t.Helper()
		expect.Equal(t, g.View().SenderPrincipal(dc, "n2"), want, "the name belongs to")
	}
	g.apply(fromNode, Contact{Sender: "n2", Incarnation: 1, Clock: 1})
	owner("", "")
	g.apply(fromNode, Contact{Sender: "n2", Incarnation: 1, Clock: 2, Principal: "node-2"})
	g.apply(fromNode, Contact{Sender: "n2", Incarnation: 1, Clock: 3, Principal: "other"})
	g.apply(fromNode, Contact{Sender: "n2", Incarnation: 2, Clock: 1, Principal: "other"})
	g.apply(fromDC2, Contact{DC: "dc2", Sender: "n2", Incarnation: 1, Clock: 1, Cut: 1, Principal: "dc2"})
	owner("", "node-2")
	owner("dc2", "dc2")

	expect.Equal(t, need.Got(Thaw(g.Freeze()))(t).View().SenderPrincipal("", "n2"), "node-2", "after a restart:")

	g.client(ForgetSender{Sender: "n2"})
	owner("", "")
	g.apply(fromNode, Contact{Sender: "n2", Incarnation: 2, Clock: 5, Principal: "other"})
	owner("", "other")
}
