package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Stored is life 2 at 100, which no client has renewed.
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
					if g.lease(orders1); res != (Result{Outcome: Older}) {
						t.Errorf("got %+v, want Older", res)
					}
					return
				}
				rec, ok := g.View().Removal(orders1)
				need.That(t, ok && res == (Result{Index: 2}), "record %t, result %+v, want one at index 2", ok, res)
				l := rec.Lease
				expect.That(t, rec.Kind == kind && l.Life == op.Life && l.Instance.LastDirty == op.LastDirty && l.Origin == fromDC2 && l.Owner == "dc2",
					"record %+v of %+v, want the version of %+v", l, l.Instance, op)
				if g.inDelta()[orders1] != ActionDeleted {
					t.Errorf("delta %v, want DELETED", g.inDelta())
				}
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
			got := g.View().RemoveOf(rec, g.now.Lease)
			expect.Deep(t, got, *want, "told on as")
			if len(g.inDelta()) != 0 {
				t.Errorf("delta %v, want none: it was never here", g.inDelta())
			}
			expect.OK(t, check(g.Registry))
			expect.OK(t, expect.Err(Thaw(g.Freeze())))
		})
	}
}

// The record of an instance that was here is shown in the delta also when a newer one replaces it.
func TestRecordThatIsReplacedStaysInTheDelta(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.client(Quarantine{Key: orders1, For: 60_000})
	g.client(Cancel{orders1})
	g.apply(fromNode, Remove{Key: orders1, Kind: Canceled, Life: 1, LastDirty: 200})
	if g.inDelta()[orders1] != ActionDeleted || g.View().Delta().Leases[0].Instance.HostName == "" {
		t.Errorf("delta %v, want it DELETED, as it was", g.inDelta())
	}
	if rec, _ := g.View().Removal(orders1); rec.Lease.Quarantine == nil || len(rec.History.Events()) != 4 {
		t.Errorf("record %+v with %v, want its quarantine and what happened", rec.Lease, rec.History.Events())
	}
}

// Each server evicts what it heard nothing of; who heard more keeps it.
func TestEvictionElsewhereIsRefusedByWhoHeardMore(t *testing.T) {
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
		taken  bool // its owner is the own datacenter now, which is a change
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
			expect.That(t, l.Local() && (res.Index != 0) == tt.taken, "owner %q, result %+v, want the own one, as a change: %t", l.Owner, res, tt.taken)
			if tt.taken && (l.ByClient != before+1 || l.ByRemote > before) {
				t.Errorf("told to %d, %d, want all peers to be told of %d", l.ByClient, l.ByRemote, before+1)
			}
		})
	}
}

// Documents of an application are made anew whenever it changed, also after a restart.
func TestApplicationChangesWithTheRecordsOfItsInstances(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders2, Up, 100))
	g.apply(fromNode, Remove{Key: orders1, Kind: Canceled, Life: 1, LastDirty: 100})
	thawed := need.Got(Thaw(g.Freeze()))(t)
	for name, v := range map[string]*View{"live": g.View(), "thawed": thawed.View()} {
		app, _ := v.App("ORDERS")
		expect.That(t, app.Changed == 2, "%s: changed at %d, want 2", name, app.Changed)
	}
}

func TestRecordIsToldWithTheTimeOfItsLastRenewal(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.pass(20_000)
	g.client(Cancel{orders1})
	g.pass(5_000)
	age := func() int64 {
		for rec := range g.View().Removals() {
			return g.View().RemoveOf(rec, g.now.Lease).Age
		}
		return -1
	}
	got := age()
	expect.That(t, got == 25_000, "renewed %d ms ago, want 25000", got)
	g.pass(300_000)
	g.Advance(g.now)
	if rec, _ := g.View().Removal(orders1); rec.Full {
		t.Fatal("the record is not reduced yet")
	}
	got = age()
	expect.That(t, got == 305_000, "reduced: renewed %d ms ago, want 305000, when it was removed", got)
}
