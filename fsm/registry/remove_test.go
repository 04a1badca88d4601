package registry

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestCancelRemovesOnce(t *testing.T) {
	g := withOrders(t, orders2)
	before := g.View()
	g.pass(5000)
	expect.Equal(t, g.peer(Cancel{orders1}), (Result{Index: 3}), "got")
	removed := g.now
	_, live := g.View().Lease(orders1)
	expect.That(t, !live, "the lease is still there")
	app, _ := g.View().App("ORDERS")
	expect.That(t, app.Len() == 1 && app.Changed == 3, "application: %d leases, changed at %d, want 1, 3", app.Len(), app.Changed)
	_, live = before.Lease(orders1)
	expect.That(t, live, "a view of before lost the lease")
	g.pass(5000)
	expect.Equal(t, g.client(Cancel{orders1}), (Result{Outcome: NotFound}), "again:")
	rec := g.Freeze().Removals[0]
	if rec.Kind != Canceled || !rec.Full || rec.Lease.EvictedAt != removed.Wall || rec.Lease.UpdatedAt != removed.Wall ||
		rec.Lease.Action != ActionDeleted || rec.Lease.Origin != FromEureka || rec.Lease.Instance.IPAddr != "10.0.0.1" {
		t.Errorf("got record %+v of %+v, want the whole lease, cancelled by the peer at %v", rec, rec.Lease, removed)
	}
}

func TestCancelOfTheLastInstanceRemovesItsApplication(t *testing.T) {
	g := withOrders(t)
	g.client(Cancel{orders1})
	if _, ok := g.View().App("ORDERS"); ok || g.View().Len() != 0 || g.View().Counts().HashCode() != "" {
		t.Errorf("application there: %t, %d leases, hash %q", ok, g.View().Len(), g.View().Counts().HashCode())
	}
	for app := range g.View().Apps() {
		t.Errorf("application %s is listed", app.Name)
	}
}

// Each of an eviction's fences, broken alone.
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

// An eviction does what a cancel does: record, delta, queue and index, one for each lease.
func TestEvictRecordsARemovalAsACancelDoes(t *testing.T) {
	g := withOrders(t, orders2)
	g.client(SetOverride{Key: orders1, Status: OutOfService})
	g.register(instance(billing1, Up, 100))
	g.pass(80_000)
	g.client(Renew{Key: orders2})
	g.pass(10_001)
	expect.Equal(t, g.client(Evict{Items: g.Expired(g.now.Lease, 10)}), (Result{Index: 6, Count: 2}), "got")
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
		key := Key{App: "ORDERS", ID: fmt.Sprint(i)}
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
			need.Equal(t, e, (Recent{Wall: startOfWall + 2499 - int64(i), Key: Key{App: "ORDERS", ID: fmt.Sprint(2499 - i)}}), "%s: entry %d is", name, i)
		}
	}
}

func TestRecentQueuesHaveReregistrationsAndUnknownCancels(t *testing.T) {
	g := withOrders(t)
	g.View()
	g.register(instance(orders1, Up, 200))
	g.client(UpdateMetadata{Key: orders1, Pairs: []Pair{{Key: "a", Value: "b"}}})
	g.client(SetOverride{Key: orders1, Status: Down})
	got := slices.Collect(g.View().RecentlyRegistered())
	expect.That(t, len(got) == 2, "registered %v, want two", got)
	g.client(Cancel{billing1})
	got = slices.Collect(g.View().RecentlyCanceled())
	expect.That(t, len(got) == 1 && got[0].Key == billing1, "cancelled %v, want the unknown one", got)
}

// The stored copy is life 2 at 100, which no client has renewed.
func TestRemoveOfALiveInstanceComparesVersions(t *testing.T) {
	tests := []struct {
		name    string
		op      Remove
		removed bool
	}{
		{"the same", Remove{Life: 2, LastDirty: 100}, true},
		{"a later registration", Remove{Life: 2, LastDirty: 101}, true},
		{"a later life", Remove{Life: 3, LastDirty: 1}, true},
		{"an earlier registration", Remove{Life: 2, LastDirty: 99}, false},
		{"an earlier life", Remove{Life: 1, LastDirty: 500}, false},
	}
	for _, kind := range []ChangeKind{Canceled, Evicted} {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				g := newRig(t)
				g.apply(fromDC2, replicaAt(Up, 100, lifeOf(2)))
				op := tt.op
				op.Key, op.Kind = orders1, kind
				res := g.apply(fromDC2, op)
				if !tt.removed {
					g.lease(orders1)
					expect.That(t, res == (Result{Outcome: Older}), "got %+v, want Older", res)
					return
				}
				rec, ok := g.View().Removal(orders1)
				need.That(t, ok && res == (Result{Index: 2}), "record %t, result %+v, want one at index 2", ok, res)
				l := rec.Lease
				expect.That(t, rec.Kind == kind && l.Life == op.Life && l.Instance.LastDirty == op.LastDirty && l.Origin == fromDC2 && l.Owner == "dc2",
					"record %+v of %+v, want the version of %+v", l, l.Instance, op)
				expect.That(t, g.inDelta()[orders1] == ActionDeleted, "delta %v, want DELETED", g.inDelta())
			})
		}
	}
}

// A record that says less is replaced; one that says as much stays as it is.
func TestRemoveOfAnInstanceThatIsNotStoredLeavesARecord(t *testing.T) {
	record := func(kind ChangeKind, life uint32, dirty int64) *Remove {
		return &Remove{Key: orders1, Kind: kind, Life: life, LastDirty: dirty, Owner: "dc2"}
	}
	tests := []struct {
		name   string
		before *Remove
		op     *Remove
		left   bool
	}{
		{"none", nil, record(Canceled, 2, 100), true},
		{"the same", record(Canceled, 2, 100), record(Canceled, 2, 100), false},
		{"an older one", record(Canceled, 2, 99), record(Canceled, 2, 100), true},
		{"a newer one", record(Canceled, 2, 101), record(Canceled, 2, 100), false},
		{"a later life", record(Evicted, 3, 1), record(Canceled, 2, 100), false},
		{"an eviction, now canceled", record(Evicted, 2, 100), record(Canceled, 2, 100), true},
		{"a cancel, now evicted", record(Canceled, 2, 100), record(Evicted, 2, 100), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			if tt.before != nil {
				g.apply(fromNode, *tt.before)
			}
			before := g.View().Index()
			res := g.apply(fromNode, *tt.op)
			if want := (Result{Index: before + 1}); tt.left && res != want || !tt.left && res != (Result{}) {
				t.Errorf("got %+v, want a record: %t", res, tt.left)
			}
			want := tt.op
			if !tt.left {
				want = tt.before
			}
			rec, _ := g.View().Removal(orders1)
			expect.Deep(t, g.View().RemoveOf(rec, g.now.Lease), *want, "told on as")
			expect.That(t, len(g.inDelta()) == 0, "delta %v, want none: it was never here", g.inDelta())
			expect.OK(t, check(g.Registry))
			expect.OK(t, expect.Err(Thaw(g.Freeze())))
		})
	}
}

// The record of an instance that was here stays in the delta even when a newer record replaces it.
func TestRemovalRecordThatIsReplacedStaysInTheDelta(t *testing.T) {
	g := withOrders(t)
	g.client(Quarantine{Key: orders1, For: 60_000})
	g.client(Cancel{orders1})
	g.apply(fromNode, Remove{Key: orders1, Kind: Canceled, Life: 1, LastDirty: 200})
	expect.That(t, g.inDelta()[orders1] == ActionDeleted && g.View().Delta().Leases[0].Instance.HostName != "",
		"delta %v, want it DELETED, as it was", g.inDelta())
	if rec, _ := g.View().Removal(orders1); rec.Lease.Quarantine == nil || len(rec.History.Events()) != 4 {
		t.Errorf("record %+v with %v, want its quarantine and what happened", rec.Lease, rec.History.Events())
	}
}

// Each server evicts an instance if it knows of no renewals; a server that knows of later ones keeps it.
func TestRemoveByEvictionIsRefusedByAServerWithALaterRenewal(t *testing.T) {
	fromOwner := func(g *rig) { g.apply(fromDC2, replicaAt(Up, 100)) }
	byClient := func(g *rig) { g.register(instance(orders1, Up, 100)) }
	renewed := func(before func(*rig)) func(*rig) {
		return func(g *rig) {
			before(g)
			g.pass(10_000)
			g.client(Renew{Key: orders1})
			g.pass(5_000)
		}
	}
	tests := []struct {
		name   string
		before func(*rig)
		origin Origin
		age    int64
		gone   bool
		taken  bool // its owner is now this datacenter, which is a change
	}{
		{"owner evicts its own", fromOwner, fromDC2, 95_000, true, false},
		{"own instance, another datacenter", byClient, fromDC2, 95_000, false, false},
		{"own instance, a node before the registration", byClient, fromNode, 0, true, false},
		{"own instance, renewed after what the node heard", renewed(byClient), fromNode, 6_000, false, false},
		{"own instance, renewed before what the node heard", renewed(byClient), fromNode, 5_000, true, false},
		{"a client renewed it here since", renewed(fromOwner), fromDC2, 5_001, false, true},
		{"a client renewed it here before", renewed(fromOwner), fromDC2, 5_000, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			tt.before(g)
			before := g.View().Index()
			res := g.apply(tt.origin, Remove{Key: orders1, Kind: Evicted, Life: 1, LastDirty: 100, Age: tt.age})
			l, live := g.View().Lease(orders1)
			need.That(t, live != tt.gone && (res.Outcome == Older) != tt.gone, "live %t, result %+v, want gone: %t", live, res, tt.gone)
			if tt.gone {
				return
			}
			expect.That(t, l.Local() && (res.Index != 0) == tt.taken, "owner %q, result %+v, want this one, as a change: %t", l.Owner, res, tt.taken)
			expect.That(t, !tt.taken || l.ByClient == before+1 && l.ByRemote <= before,
				"told to %d, %d, want all peers to be told of %d", l.ByClient, l.ByRemote, before+1)
		})
	}
}

// Documents of an application are rebuilt whenever it changes, even after a restart.
func TestRemovalRecordChangesItsApplication(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders2, Up, 100))
	g.apply(fromNode, Remove{Key: orders1, Kind: Canceled, Life: 1, LastDirty: 100})
	thawed := need.Got(Thaw(g.Freeze()))(t)
	for name, v := range map[string]*View{"live": g.View(), "thawed": thawed.View()} {
		app, _ := v.App("ORDERS")
		expect.That(t, app.Changed == 2, "%s: changed at %d, want 2", name, app.Changed)
	}
}

func TestRemoveOfHasTheTimeOfTheLastRenewal(t *testing.T) {
	g := withOrders(t)
	g.pass(20_000)
	g.client(Cancel{orders1})
	g.pass(5_000)
	age := func() int64 {
		for rec := range g.View().Removals() {
			return g.View().RemoveOf(rec, g.now.Lease).Age
		}
		return -1
	}
	expect.Equal(t, age(), 25_000, "renewed")
	g.pass(300_000)
	g.Advance(g.now)
	rec, _ := g.View().Removal(orders1)
	need.That(t, !rec.Full, "the record is not reduced yet")
	expect.Equal(t, age(), 305_000, "reduced: renewed")
}
