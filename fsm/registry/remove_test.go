package registry

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestCancelRemovesOnce(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.register(instance(orders2, Up, 100))
	before := g.View()
	g.pass(5000)
	res := g.peer(Cancel{orders1})
	expect.That(t, res == (Result{Index: 3}), "got %+v, want Done with index 3", res)
	removed := g.now
	_, live := g.View().Lease(orders1)
	expect.That(t, !live, "the lease is still there")
	if app, _ := g.View().App("ORDERS"); app.Len() != 1 || app.Changed != 3 {
		t.Errorf("application: %d leases, changed at %d, want 1, 3", app.Len(), app.Changed)
	}
	if _, live := before.Lease(orders1); !live {
		t.Error("a view of before lost the lease")
	}
	g.pass(5000)
	expect.Equal(t, g.client(Cancel{orders1}), (Result{Outcome: NotFound}), "again:")
	rec := g.Freeze().Removals[0]
	if rec.Kind != Canceled || !rec.Full || rec.Lease.EvictedAt != removed.Wall || rec.Lease.UpdatedAt != removed.Wall ||
		rec.Lease.Action != ActionDeleted || rec.Lease.Origin != FromEureka || rec.Lease.Instance.IPAddr != "10.0.0.1" {
		t.Errorf("got record %+v of %+v, want the whole lease, cancelled by the peer at %v", rec, rec.Lease, removed)
	}
}

func TestApplicationWithoutInstancesDoesNotExist(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.client(Cancel{orders1})
	if _, ok := g.View().App("ORDERS"); ok || g.View().Len() != 0 || g.View().HashCode() != "" {
		t.Errorf("application there: %t, %d leases, hash %q", ok, g.View().Len(), g.View().HashCode())
	}
	for app := range g.View().Apps() {
		t.Errorf("application %s is listed", app.Name)
	}
}

// Each of the fences of an eviction, broken alone.
func TestEvictIsFenced(t *testing.T) {
	epoch := Epoch{Term: 7, Index: 70}
	tests := []struct {
		name    string
		spoil   func(g *rig, op *Evict, term *uint64)
		outcome Outcome
		count   int
	}{
		{"nothing in the way", func(*rig, *Evict, *uint64) {}, Done, 1},
		{"entry of another term", func(_ *rig, _ *Evict, term *uint64) { *term = 8 }, Refused, 0},
		{"another leader's epoch now", func(g *rig, _ *Evict, _ *uint64) { g.Establish(Epoch{Term: 8, Index: 80}, "c") }, Refused, 0},
		{"same term, established again", func(g *rig, _ *Evict, _ *uint64) { g.Establish(Epoch{Term: 7, Index: 71}, "c") }, Refused, 0},
		{"decided under an earlier epoch", func(_ *rig, op *Evict, _ *uint64) { op.Epoch.Index = 69 }, Refused, 0},
		{"renewed since", func(g *rig, _ *Evict, _ *uint64) { g.client(Renew{Key: orders1}) }, Done, 0},
		{"registered again since", func(g *rig, op *Evict, _ *uint64) {
			g.client(Register{instance(orders1, Up, 100)})
			op.Items[0].RenewedAt = g.now.Lease
		}, Done, 0},
		{"removed and registered since", func(g *rig, op *Evict, _ *uint64) {
			g.client(Cancel{orders1})
			res := g.client(Register{instance(orders1, Up, 100)})
			op.Items[0].Registered, op.Items[0].RenewedAt = res.Index, g.now.Lease
		}, Done, 0},
		{"removed since", func(g *rig, _ *Evict, _ *uint64) { g.client(Cancel{orders1}) }, Done, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.Establish(epoch, "c")
			g.register(instance(orders1, Up, 100))
			g.pass(100_000)
			op := Evict{Epoch: epoch, Items: g.Expired(g.now.Lease, 10)}
			need.That(t, len(op.Items) == 1, "expired: %v, want one", op.Items)
			term := epoch.Term
			tt.spoil(g, &op, &term)
			_, liveBefore := g.View().Lease(orders1)
			res := g.Apply(g.now, term, FromClient, op)
			expect.That(t, res.Outcome == tt.outcome && res.Count == tt.count && (res.Index != 0) == (tt.count > 0),
				"got %+v, want outcome %d, count %d", res, tt.outcome, tt.count)
			_, live := g.View().Lease(orders1)
			expect.That(t, live == (liveBefore && tt.count == 0), "live %t after %d evictions", live, tt.count)
		})
	}
}

// Eviction is the cancel code: record, delta, queue and index, one for each lease.
func TestEvictLeavesWhatACancelLeaves(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.register(instance(orders2, Up, 100))
	g.client(SetOverride{Key: orders1, Status: OutOfService})
	g.register(instance(billing1, Up, 100))
	g.pass(80_000)
	g.client(Renew{Key: orders2})
	g.pass(10_001)
	res := g.client(Evict{Items: g.Expired(g.now.Lease, 10)})
	expect.That(t, res == (Result{Index: 6, Count: 2}), "got %+v, want two evictions up to index 6", res)
	wantKeys(t, "live", keysOf(g.View().Leases()), orders2)
	changes, err := g.View().Changes(4, 0)
	if err != nil || len(changes) != 2 || changes[0].Index != 5 || changes[1].Index != 6 ||
		changes[0].Kind != Evicted || changes[0].Lease.Origin != FromClient || changes[0].Lease.EvictedAt != g.now.Wall {
		t.Errorf("got changes %+v, %v, want an index for each eviction", changes, err)
	}
	got := g.inDelta()
	expect.That(t, got[orders1] == ActionDeleted && got[billing1] == ActionDeleted, "delta %v, want both DELETED", got)
	if got := slices.Collect(g.View().RecentlyCanceled()); len(got) != 2 {
		t.Errorf("recently cancelled %v, want both", got)
	}
}

func TestRecentQueuesKeepTheNewestThousand(t *testing.T) {
	g := newRig(t)
	for i := range 2500 {
		key := Key{"ORDERS", fmt.Sprint(i)}
		g.register(instance(key, Up, 100))
		g.client(Cancel{key})
		g.pass(1)
		if i == 1200 {
			middle := g.View()
			defer func() {
				got := slices.Collect(middle.RecentlyRegistered())
				expect.That(t, len(got) == 1000 && got[0].Key.ID == "1200" && got[999].Key.ID == "201", "an old view's queue moved: %d entries", len(got))
			}()
		}
	}
	for name, queue := range map[string][]Recent{
		"registered": slices.Collect(g.View().RecentlyRegistered()),
		"cancelled":  slices.Collect(g.View().RecentlyCanceled()),
	} {
		need.That(t, len(queue) == 1000, "%s: %d entries, want 1000", name, len(queue))
		for i, e := range queue {
			need.Equal(t, e, (Recent{Wall: startOfWall + 2499 - int64(i), Key: Key{"ORDERS", fmt.Sprint(2499 - i)}}), "%s: entry %d is", name, i)
		}
	}
}

func TestRecentQueuesHaveReregistrationsAndUnknownCancels(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.View()
	g.register(instance(orders1, Up, 200))
	g.client(UpdateMetadata{Key: orders1, Pairs: []Pair{{"a", "b"}}})
	g.client(SetOverride{Key: orders1, Status: Down})
	got := slices.Collect(g.View().RecentlyRegistered())
	expect.That(t, len(got) == 2, "registered %v, want two", got)
	g.client(Cancel{billing1})
	got = slices.Collect(g.View().RecentlyCanceled())
	expect.That(t, len(got) == 1 && got[0].Key == billing1, "cancelled %v, want the unknown one", got)
}
