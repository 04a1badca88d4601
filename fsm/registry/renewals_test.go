package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// A removal that another server sends may be the first that a registry hears of at all.
func TestRemovalOfTheUnknownIsRecordedWithItsReasonInAnEmptyRegistry(t *testing.T) {
	for _, origin := range []Origin{fromNode, {Kind: RemoteDC, DC: "dc2"}, FromEureka} {
		g := newRig(t)
		before := g.View()
		g.apply(origin, Remove{Key: orders1, Kind: Canceled, Life: 1, LastDirty: 100})
		v := g.View()
		changes := need.Got(v.Changes(0, 0))(t)
		need.That(t, len(changes) == 1, "%d changes, want the removal", len(changes))
		for _, seen := range []*View{v, before} { // one that is older has no record of it
			why, ok := seen.Why(changes[0])
			expect.That(t, ok == (seen == v) && (!ok || why == EventCanceled), "its reason is %s, %t", why, ok)
			expect.That(t, seen.LastRenewal(changes[0].Lease) == Stamp{}, "it was renewed at %v", seen.LastRenewal(changes[0].Lease))
		}
		expect.That(t, len(v.History(orders1)) == 1, "history %v, want the removal", v.History(orders1))
		for c, h := range v.NewestFirst() {
			expect.That(t, c.Lease == changes[0].Lease && len(h.Events()) == 1, "got %+v with %v", c, h.Events())
		}
	}
}

// What a removed lease was called by says nothing any more: its slot is another one's, here or on another node.
func TestRemovedLeaseHasNoSlot(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	live := g.lease(orders1)
	g.pass(5000)
	g.client(Renew{Key: orders1})
	removed := *live
	removed.EvictedAt, removed.RenewedAt = g.now.Wall, Stamp{Lease: 7, Wall: 8}
	nameless := *live
	nameless.Handle = Handle{}
	expect.Equal(t, g.View().LastRenewal(live), g.now, "renewal of the live lease")
	expect.Equal(t, g.View().LastRenewal(&removed), removed.RenewedAt, "renewal of a removed lease with the handle of a live one")
	expect.Equal(t, g.View().Age(&removed, g.now.Lease), g.now.Lease-7, "age of a removed lease")
	g.client(Cancel{orders1}) // frees slot 0, where the last renewal is left
	expect.Equal(t, g.View().LastRenewal(&nameless), nameless.RenewedAt, "renewal of a lease without a handle")
	_, ok := g.View().Why(Change{Lease: &removed, Index: 99})
	expect.That(t, !ok, "a removed lease has a reason without a record")
}

// A write to a slot beyond the table is nobody's.
func TestSlotBeyondTheTableIsFree(t *testing.T) {
	table := newRenewals()
	for _, slots := range []int{0, 1, renewalsPerChunk} {
		table.grow(slots)
		for _, slot := range []uint32{renewalsPerChunk, 1<<32 - 1} {
			table.assign(Handle{Slot: slot, Gen: 1}, Stamp{Lease: 7}, nil)
			expect.Equal(t, table.at(slot).generation.Load(), 0, "generation in slot %d of %d", slot, slots)
		}
	}
}

// Handles come from log entries, disks and other nodes.
func TestHandlesThatWereNeverGivenOutNameNothing(t *testing.T) {
	for _, leases := range []int{0, 1, renewalsPerChunk + 1} {
		for _, h := range []Handle{{Gen: 9}, {Slot: 1, Gen: 1}, {Slot: 255, Gen: 999}, {Slot: 256, Gen: 1}, {Slot: 1 << 20, Gen: 1}, {Slot: 1<<32 - 1, Gen: 1<<64 - 1}, {Slot: 1<<32 - 1}} {
			g := newRig(t)
			for i := range leases {
				g.register(instance(Key{App: "ORDERS", ID: string(rune('a' + i))}, Up, 100))
			}
			before := g.View()
			expect.Equal(t, g.client(Renew{Handle: h, Key: orders1}), Result{Outcome: DeadHandle}, "renew by %v", h)
			expect.Equal(t, g.client(Evict{Items: []EvictItem{{Handle: h}}}), Result{}, "evict of %v", h)
			expect.Equal(t, g.client(EndOverride{Handle: h, Set: 1}).Index, 0, "end of an override of %v", h)
			expect.Equal(t, g.client(EndQuarantine{Handle: h, Set: 1}).Index, 0, "end of a quarantine of %v", h)
			_, ok := g.StateOf(h)
			expect.That(t, !ok && g.Owner(h) == "", "%v has a state or an owner", h)
			l := &Lease{Instance: instance(orders1, Up, 100), Handle: h, RenewedAt: Stamp{Lease: 3}}
			v := g.View()
			expect.Equal(t, v.LastRenewal(l), l.RenewedAt, "renewal of %v", h)
			_, ok = v.Why(Change{Lease: l, Index: 9999})
			expect.That(t, !ok, "%v has a reason", h)
			expect.That(t, v.Index() == before.Index(), "%v changed something", h)
		}
	}
}
