package registry

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestClockKeepsTheLatestLeaseTimeAndTheNewestWallTime(t *testing.T) {
	tests := []struct {
		name  string
		stamp Stamp
		want  Stamp
	}{
		{"both later", Stamp{6000, 8000}, Stamp{6000, 8000}},
		{"lease clock back", Stamp{4000, 8000}, Stamp{5000, 8000}},
		{"wall clock back", Stamp{6000, 6000}, Stamp{6000, 6000}},
		{"an hour ahead", Stamp{5000 + maxLead, 8000}, Stamp{5000 + maxLead, 8000}},
		{"more than an hour ahead is not believed", Stamp{5001 + maxLead, 8000}, Stamp{5000, 7000}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := New()
			r.Advance(Stamp{5000, 7000})
			r.Advance(tt.stamp)
			got := r.Clock()
			expect.That(t, got == tt.want && r.View().Stamp() == tt.want, "got %v, view %v, want %v", got, r.View().Stamp(), tt.want)
		})
	}
}

func TestEstablishKeepsTheFirstClusterAndTheNewestEpoch(t *testing.T) {
	g := newRig(t)
	expect.That(t, g.View().Epoch() == "" && g.Epoch() == (Epoch{}), "before: cluster %q, epoch %v", g.View().Epoch(), g.Epoch())
	g.Establish(Epoch{Term: 1, Index: 2}, "first")
	g.Establish(Epoch{Term: 3, Index: 4}, "second")
	expect.That(t, g.View().Epoch() == "first" && g.Epoch() == (Epoch{Term: 3, Index: 4}) && g.View().Index() == 0,
		"got cluster %q, epoch %v, index %d", g.View().Epoch(), g.Epoch(), g.View().Index())
}

const year = 365 * 24 * 3_600_000

// A leader whose wall clock is a year ahead leads for one entry.
func TestClockFollowsTheNextLeaderAfterAWallTimeOneYearAhead(t *testing.T) {
	for _, tt := range []struct {
		name   string
		thawed bool
	}{{"at once", false}, {"after a restart", true}} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.now.Wall += year
			g.register(instance(orders1, Up, 0)) // gets a timestamp of next year
			g.now.Wall -= year
			if tt.thawed {
				var err error
				g.Registry, err = Thaw(g.Freeze())
				need.OK(t, err)
			}
			g.pass(60_000)
			g.register(instance(orders2, Up, 0))
			if l := g.lease(orders2); l.RegisteredAt != g.now.Wall || l.Instance.LastDirty != g.now.Wall || g.Clock() != g.now {
				t.Errorf("registered at %d with the timestamp %d, clock %v, want the true time %v", l.RegisteredAt, l.Instance.LastDirty, g.Clock(), g.now)
			}
			i := instance(orders1, Up, g.now.Wall-5)
			i.Port = Port{Number: 9090, Enabled: true}
			g.register(i)
			l := g.lease(orders1)
			expect.That(t, l.Instance.Port == i.Port && l.Instance.LastDirty == i.LastDirty,
				"got %+v, want what the client registered with its true timestamp", l.Instance)
		})
	}
}

// Other servers have the copy whose timestamp is ahead, and must take its replacement for newer.
func TestRegistrationInThePlaceOfATimestampAheadIsNewerOnEveryServer(t *testing.T) {
	g, other := newRig(t), newRig(t)
	g.client(Contact{DC: "dc2", Sender: "s", Incarnation: 1, Cut: 15_000})
	ahead := instance(orders1, Up, g.now.Wall+year)
	g.register(ahead)
	tell := func() Result {
		v := g.View()
		return other.apply(Origin{Kind: LocalPeer}, v.ReplicaOf(g.lease(orders1), g.now.Lease))
	}
	tell()
	i := instance(orders1, Down, g.now.Wall)
	g.register(i)
	tell()
	l := other.lease(orders1)
	expect.That(t, l.Instance.Status == Down && l.Instance.LastDirty == i.LastDirty, "the other server has %+v, want what replaced it", l.Instance)
}

func TestRegistrationByAnotherServerIsOlderThanATimestampAhead(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, g.now.Wall+year))
	res := g.peer(Register{instance(orders1, Down, g.now.Wall)})
	expect.That(t, res.Outcome == KeptExisting, "got %+v, want the newer one kept", res)
}

func TestRegistrationOlderThanATimestampWithinAnHourIsNotStoredBelowLevel3(t *testing.T) {
	g := newRig(t)
	g.SetLevel(Level3 - 1)
	g.register(instance(orders1, Up, g.now.Wall+maxAhead))
	res := g.client(Register{instance(orders1, Down, g.now.Wall)})
	expect.That(t, res.Outcome == KeptExisting, "got %+v, want the newer one kept", res)
}

// A network fault ends: self-preservation goes off when enough of the silent clients were heard again, and the others
// are still to come.
func TestGraceCoversTheLastClientsToComeBack(t *testing.T) {
	const grace = 30_000 + renewalGrace
	tests := []struct {
		name  string
		state PreservationState
		ends  func(g *rig)
		grace int64 // ms that a lease which ended long ago still gets
	}{
		{"on, until the condition was false", PreservationOn, func(g *rig) { g.decide(good) }, grace},
		{"on, with upstream's formula", PreservationOn, func(g *rig) { g.decide(good); g.Configure(Settings{Expectation: true}) }, 0},
		{"held, until the hold was over", PreservationHeld, func(g *rig) { g.pass(holding); g.decide(good) }, 0},
		{"on, until an operator released it", PreservationOn, func(g *rig) { g.client(SelfPreservation{To: PreservationReleased, By: ann}) }, 0},
		{"released, until the condition was false", PreservationReleased, func(g *rig) { g.decide(good) }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			in := instance(orders1, Up, 100)
			in.RenewalInterval, in.Duration = 30, 90
			g.register(in)
			g.pass(hour / 2)
			g.in(tt.state)
			tt.ends(g)
			now := g.now.Lease
			thawed := need.Got(Thaw(g.Freeze()))(t)
			for name, r := range map[string]*Registry{"registry": g.Registry, "thawed": thawed} {
				ends := max(r.View().Ends(g.lease(orders1))-now, 0)
				expect.That(t, ends == tt.grace, "%s: the lease ends in %d ms, want %d", name, ends, tt.grace)
				expect.That(t, tt.grace <= 0 || len(r.Expired(now+tt.grace, 10)) == 0,
					"%s: the lease has ended at the last moment of the grace", name)
				expect.That(t, len(r.Expired(now+tt.grace+1, 10)) == 1, "%s: the lease has not ended after the grace", name)
			}
		})
	}
}

// spoiled returns an instance that no format can hold: registering it panics over its status, halfway.
func spoiled(key Key) *Instance { return instance(key, Status(200), startOfWall+120_000) }

// panics performs an operation and returns what it panicked with, or "".
func panics(r *Registry, now Stamp, op Op) (cause string) {
	defer func() {
		if p := recover(); p != nil {
			cause = fmt.Sprint(p)
		}
	}()
	r.Apply(now, r.Epoch().Term, FromClient, op)
	return ""
}

func TestRegistryIsMadeAnewFromAViewAfterAPanic(t *testing.T) {
	halves := 0
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		now := Stamp{Lease: 1000, Wall: startOfWall}
		steps := drawSteps.Draw(t, "steps")
		spoil := rapid.IntRange(0, len(steps)-1).Draw(t, "panics before step")
		key := drawKey.Draw(t, "key")
		for i, s := range steps {
			if i == spoil {
				r.Advance(now)
				v, want := r.View(), r.Freeze()
				now.Lease, now.Wall = now.Lease+1, now.Wall+1
				if panics(r, now, Register{Instance: spoiled(key)}) == "" {
					return // it is quarantined, or older than the stored one
				}
				if r.Next() != v.Index()+1 {
					halves++
				}
				rebuilt, err := r.Rebuild(v)
				need.OKf(t, err, "rebuild")
				sameButForSlots(t, rebuilt.Freeze(), want, key)
				need.That(t, rebuilt.View().NewestBeat() == v.NewestBeat(), "beats begin anew")
				r = rebuilt
			}
			now.Lease, now.Wall = now.Lease+s.pass, now.Wall+s.pass
			s.apply(r, now)
			need.OKf(t, check(r), "step %d %+v, after a rebuild before %d", i, s, spoil)
		}
	})
	expect.That(t, halves > 0, "no operation panicked halfway")
}

// sameButForSlots checks that two states are equal except for what an operation that panicked uses up, and for the
// last renewal of its instance.
func sameButForSlots(t *rapid.T, got, want Frozen, about Key) {
	for i := range got.Leases {
		if got.Leases[i].Lease.Key() == about && i < len(want.Leases) {
			got.Leases[i].Renewed, got.Leases[i].History = want.Leases[i].Renewed, want.Leases[i].History
			got.Leases[i].Client, got.Leases[i].Remote = want.Leases[i].Client, want.Leases[i].Remote
		}
	}
	got.Slots, got.Generation, got.Free, got.Clock = want.Slots, want.Generation, want.Free, want.Clock
	need.Deep(t, got, want, "made anew")
}

// What a node without consensus knows about renewals is not part of a snapshot.
func TestRebuildKeepsWhatRenewalsSay(t *testing.T) {
	r := New()
	r.WithoutConsensus()
	r.SetLevel(2)
	now := Stamp{Lease: 1000, Wall: startOfWall}
	key, doubted := Key{App: "ORDERS", ID: "1"}, Key{App: "ORDERS", ID: "2"}
	for _, k := range []Key{key, doubted} {
		r.Apply(now, 0, FromClient, Register{Instance: instance(k, Up, 100)})
	}
	r.Doubt()
	v := r.View()
	now = Stamp{Lease: 5000, Wall: startOfWall + 4000}
	r.Apply(now, 0, FromClient, Renew{Key: key, LastDirty: 100})
	need.That(t, panics(r, now, Register{Instance: spoiled(Key{App: "BILLING", ID: "1"})}) != "", "nothing panicked")
	rebuilt := need.Got(r.Rebuild(v))(t)
	for _, view := range []*View{v, rebuilt.View()} {
		l, _ := view.Find(key)
		d, _ := view.Find(doubted)
		expect.Equal(t, view.LastRenewal(l), now, "last renewal")
		expect.That(t, !view.tables.renewals.hearsay(l) && view.tables.renewals.hearsay(d), "what is hearsay is not known any more")
	}
	expect.That(t, rebuilt.withoutConsensus, "it is a cluster's now")
	expect.That(t, rebuilt.bounded(), "the bounds of its level are forgotten")
	next := Stamp{Lease: 6000, Wall: startOfWall + 5000}
	rebuilt.Apply(next, 0, FromClient, Renew{Key: key, LastDirty: 100})
	l, _ := v.Find(key)
	expect.Equal(t, v.LastRenewal(l), next, "a view of before reads the last renewal")
}

func TestRebuildUndoesWhatAnOperationWroteIntoTheTableOfRenewals(t *testing.T) {
	r := New()
	now := Stamp{Lease: 1000, Wall: startOfWall}
	canceled, overridden, entered := Key{App: "ORDERS", ID: "1"}, Key{App: "ORDERS", ID: "2"}, Key{App: "ORDERS", ID: "3"}
	for _, k := range []Key{canceled, overridden} {
		r.Apply(now, 0, FromClient, Register{Instance: instance(k, Up, 100)})
	}
	v := r.View()
	history := len(v.History(overridden))
	now = Stamp{Lease: 5000, Wall: startOfWall + 4000}
	r.Apply(now, 0, FromClient, SetOverride{Key: overridden, Status: OutOfService})
	r.Apply(now, 0, FromClient, Register{Instance: instance(entered, Up, 100)})
	half, _ := r.View().Find(entered)
	r.Apply(now, 0, FromClient, Cancel{Key: canceled})
	rebuilt := need.Got(r.Rebuild(v))(t)
	l, ok := rebuilt.View().Find(canceled)
	need.That(t, ok && rebuilt.View().LastRenewal(l) == now, "what was taken apart: %+v, %v; want it renewed now", l, ok)
	expect.Equal(t, len(rebuilt.View().History(overridden)), history, "events")
	_, renewed := rebuilt.tables.renewals.last(half)
	expect.That(t, !renewed, "the slot of what was never shown is not free")
}

// A rebuilt registry keeps the bounds of its level.
func TestRebuildKeepsTheLevel(t *testing.T) {
	r := New()
	r.SetLevel(2)
	r.Apply(Stamp{Lease: 1000, Wall: startOfWall}, 0, FromClient, RegisterCatalog{Node: &catalog.Node{Name: "far", Address: "10.0.0.1"}})
	rebuilt := need.Got(r.Rebuild(r.View()))(t)
	expect.That(t, rebuilt.bounded(), "it has the rules of the first level")
}
