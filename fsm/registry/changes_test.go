package registry

import (
	"fmt"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestChangesHaveEachInstanceAtItsLastChange(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))  // 1
	g.register(instance(orders2, Up, 100))  // 2
	g.register(instance(billing1, Up, 100)) // 3
	g.client(SetOverride{Key: orders1, Status: Down})
	g.client(Cancel{orders2}) // 5
	g.client(Renew{Key: billing1})
	tests := []struct {
		after Index
		limit int
		want  string
	}{
		{0, 0, "[3 BILLING/billing-1 0] [4 ORDERS/orders-1 0] [5 ORDERS/orders-2 1] "},
		{0, 2, "[3 BILLING/billing-1 0] [4 ORDERS/orders-1 0] "},
		{3, 1, "[4 ORDERS/orders-1 0] "},
		{3, 0, "[4 ORDERS/orders-1 0] [5 ORDERS/orders-2 1] "},
		{4, 0, "[5 ORDERS/orders-2 1] "},
		{5, 0, ""},
		{^Index(0), 0, ""},
	}
	for _, tt := range tests {
		changes, err := g.View().Changes(tt.after, tt.limit)
		got := ""
		for _, c := range changes {
			got += fmt.Sprintf("[%d %s %d] ", c.Index, c.Lease.Key(), c.Kind)
		}
		expect.That(t, err == nil && got == tt.want, "after %d, at most %d: got %s, %v, want %s", tt.after, tt.limit, got, err, tt.want)
	}
	g.register(instance(orders2, Up, 50)) // 6
	changes, _ := g.View().Changes(4, 0)
	expect.That(t, len(changes) == 1 && changes[0].Kind == Live && changes[0].Lease.Life == 2,
		"registered again: %+v, want the live instance instead of the record", changes)
}

func TestRemovalRecordIsReducedAfterTheDeltaWindowAndForgottenAfterADay(t *testing.T) {
	g := newRig(t)
	in := instance(orders1, Up, 100)
	in.InstanceID = "" // the id is the host name
	key := in.Key()
	g.apply(fromDC2, Replica{Instance: in, Life: 1, Edit: 3})
	g.client(Cancel{key})
	canceled := g.now.Lease
	record := func(at int64) *Removal {
		g.pass(canceled + at - g.now.Lease)
		g.Advance(g.now)
		if f := g.Freeze(); len(f.Removals) > 0 {
			return &f.Removals[0]
		}
		return nil
	}
	if rec := record(180_000); rec == nil || !rec.Full {
		t.Fatalf("after 180 s: %+v, want the whole lease", rec)
	}
	rec := record(210_000)
	need.That(t, rec != nil && !rec.Full && rec.Lease.Key() == key && rec.Lease.Instance.IPAddr == "",
		"after 210 s: %+v, want a reduced lease of the same key", rec)
	want := Lease{Instance: rec.Lease.Instance, EvictedAt: startOfWall, Action: ActionDeleted, Life: 1, Edit: 3, Owner: "dc2", Changed: 2, ChangedLease: canceled}
	expect.That(t, *rec.Lease == want && rec.Lease.Instance.LastDirty == 100,
		"after 210 s: %+v dirty %d, want %+v, 100", *rec.Lease, rec.Lease.Instance.LastDirty, want)
	// The clock may not jump by more than an hour.
	for at := int64(0); at < maxRemovalAge; at += maxLead {
		record(at)
	}
	if rec := record(maxRemovalAge - 30_000); rec == nil {
		t.Fatal("forgotten before a day")
	}
	expect.OKf(t, expect.Err(g.View().Changes(1, 0)), "changes within the day")
	if rec := record(maxRemovalAge + 30_000); rec != nil {
		t.Fatalf("after a day: %+v, want it forgotten", rec)
	}
	expect.ErrorIs(t, expect.Err(g.View().Changes(1, 0)), ErrTooOld, "changes after 1:")
	expect.OKf(t, expect.Err(g.View().Changes(2, 0)), "changes after 2, the newest that was forgotten")
	res := g.peer(Register{instance(key, Up, 100)})
	expect.That(t, res.Outcome == Done && g.lease(key).Life == 1, "replica after a day: %+v, want a first life", res)
}

func TestOldestRemovalRecordGoesWhenThereAreTooMany(t *testing.T) {
	g := newRig(t)
	remove := func(from, to int) {
		for i := from; i < to; i++ {
			key := Key{"ORDERS", fmt.Sprint(i)}
			g.register(instance(key, Up, 100))
			g.client(Cancel{key})
		}
	}
	remove(0, maxRemovals)
	if f := g.Freeze(); len(f.Removals) != maxRemovals || f.Pruned != 0 {
		t.Fatalf("%d records, pruned to %d, want %d, 0", len(f.Removals), f.Pruned, maxRemovals)
	}
	remove(maxRemovals, maxRemovals+2)
	f := g.Freeze()
	if len(f.Removals) != maxRemovals || f.Pruned != 4 || f.Removals[0].Lease.Instance.ID() != "2" {
		t.Errorf("%d records, pruned to %d, first %s; want %d, 4, 2", len(f.Removals), f.Pruned, f.Removals[0].Lease.Key(), maxRemovals)
	}
	expect.ErrorIs(t, expect.Err(g.View().Changes(3, 0)), ErrTooOld, "changes after 3:")
}
