package registry

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// spoiled is an instance that no format can hold: what registers it panics over its status, halfway.
func spoiled(key Key) *Instance { return instance(key, Status(200), startOfWall+120_000) }

// panics performs an operation and says what it panicked with; "": it did not.
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

// sameButForSlots checks that two states are equal but for what an operation that panicked uses up, and for the last
// renewal of the instance that it was about.
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

// What a node without consensus knows of renewals is not part of what a snapshot has.
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

// A registry that was made anew has the bounds of the level that the one before it had.
func TestRebuildKeepsTheLevel(t *testing.T) {
	r := New()
	r.SetLevel(2)
	r.Apply(Stamp{Lease: 1000, Wall: startOfWall}, 0, FromClient, RegisterCatalog{Node: &catalog.Node{Name: "far", Address: "10.0.0.1"}})
	rebuilt := need.Got(r.Rebuild(r.View()))(t)
	expect.That(t, rebuilt.bounded(), "it has the rules of the first level")
}
