package registry

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

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

func TestRemovalRecordIsReducedAfterTheDeltaWindowAndPrunedAfterADay(t *testing.T) {
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
	for at := int64(0); at < MaxRemovalAge; at += maxLead {
		record(at)
	}
	need.That(t, record(MaxRemovalAge-30_000) != nil, "forgotten before a day")
	expect.OKf(t, expect.Err(g.View().Changes(1, 0)), "changes within the day")
	rec = record(MaxRemovalAge + 30_000)
	need.That(t, rec == nil, "after a day: %+v, want it forgotten", rec)
	expect.ErrorIs(t, expect.Err(g.View().Changes(1, 0)), ErrTooOld, "changes after 1:")
	expect.OKf(t, expect.Err(g.View().Changes(2, 0)), "changes after 2, the newest that was forgotten")
	res := g.peer(Register{instance(key, Up, 100)})
	expect.That(t, res.Outcome == Done && g.lease(key).Life == 1, "replica after a day: %+v, want a first life", res)
}

func TestRemovalRecordsBeyondTheBoundArePrunedOldestFirst(t *testing.T) {
	g := newRig(t)
	remove := func(from, to int) {
		for i := from; i < to; i++ {
			key := Key{App: "ORDERS", ID: fmt.Sprint(i)}
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
	expect.That(t, len(f.Removals) == maxRemovals && f.Pruned == 4 && f.Removals[0].Lease.Instance.ID() == "2",
		"%d records, pruned to %d, first %s; want %d, 4, 2", len(f.Removals), f.Pruned, f.Removals[0].Lease.Key(), maxRemovals)
	expect.ErrorIs(t, expect.Err(g.View().Changes(3, 0)), ErrTooOld, "changes after 3:")
}

func TestDeltaShowsAChangeFor180To210Seconds(t *testing.T) {
	tests := []struct {
		changed int64 // lease clock
		shown   int64 // still at
		gone    int64 // from
	}{
		{0, 209_999, 210_000},
		{1, 209_999, 210_000},
		{29_999, 209_999, 210_000},
		{30_000, 239_999, 240_000},
	}
	for _, tt := range tests {
		for _, removed := range []bool{false, true} {
			t.Run(fmt.Sprintf("changed at %d, removed %t", tt.changed, removed), func(t *testing.T) {
				g := newRig(t)
				g.now.Lease = tt.changed
				g.register(instance(orders1, Up, 100))
				if removed {
					g.client(Cancel{orders1})
				}
				g.now.Lease = tt.shown
				g.Advance(g.now)
				expect.Equal(t, len(g.View().Delta().Leases), 1, "at %d:", tt.shown)
				g.now.Lease = tt.gone
				g.Advance(g.now)
				expect.Equal(t, len(g.View().Delta().Leases), 0, "at %d:", tt.gone)
			})
		}
	}
}

func TestDeltaListsByApplicationRemovedLast(t *testing.T) {
	g := newRig(t)
	a, b, c := Key{App: "ORDERS", ID: "a"}, Key{App: "ORDERS", ID: "b"}, Key{App: "ORDERS", ID: "c"}
	for _, key := range []Key{c, b, a, orders1, billing1} {
		g.register(instance(key, Up, 100))
	}
	g.client(Cancel{a})
	g.client(Cancel{billing1})
	g.client(SetOverride{Key: b, Status: Down})
	g.client(Cancel{orders1})
	g.register(instance(orders1, Up, 100)) // there once only, and live
	d := g.View().Delta()
	var keys []Key
	var actions []Action
	for _, l := range d.Leases {
		keys, actions = append(keys, l.Key()), append(actions, l.Action)
	}
	wantKeys(t, "delta", keys, billing1, b, c, orders1, a)
	want := "[DELETED MODIFIED ADDED ADDED DELETED]"
	expect.That(t, fmt.Sprint(actions) == want, "actions %v, want %s", actions, want)
	if want := "DOWN_1_UP_2_"; d.HashCode != want || g.View().HashCode() != want {
		t.Errorf("hash %s, want that of the whole registry, %s", d.HashCode, want)
	}
}

// A client that has any full answer of the window and applies the delta has the present content.
func TestDeltaAppliedToAnyFullListOfTheWindowGivesThePresentOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		now := Stamp{Lease: 1000, Wall: startOfWall}
		answers := []*View{r.View()}
		for _, s := range drawSteps.Draw(t, "steps") {
			now.Lease, now.Wall = now.Lease+s.pass, now.Wall+s.pass
			s.apply(r, now)
			v := r.View()
			for _, old := range answers {
				if now.Lease-old.Stamp().Lease <= deltaWindow {
					checkDelta(t, old, v)
				}
			}
			answers = append(answers, v)
		}
	})
}

func checkDelta(t *rapid.T, old, now *View) {
	content := contentOf(old)
	delta := now.Delta()
	seen := map[Key]bool{}
	for _, l := range delta.Leases {
		need.That(t, !seen[l.Key()], "%s is in the delta twice", l.Key())
		seen[l.Key()] = true
		switch l.Action {
		case ActionAdded, ActionModified:
			content[l.Key()] = shown{l.Instance, l.Changed}
		case ActionDeleted:
			delete(content, l.Key())
		default:
			t.Fatalf("%s has the action %q", l.Key(), l.Action)
		}
	}
	want := contentOf(now)
	need.That(t, maps.Equal(content, want), "full of %d and delta of %d: got %v, want %v", old.Index(), now.Index(), content, want)
	need.Equal(t, delta.HashCode, now.HashCode(), "hash")
	if previous := old.Delta().Version; delta.Version < previous ||
		(delta.Version == previous) != (old.Index() == now.Index() && old.DeltaStep() == now.DeltaStep()) {
		t.Fatalf("version %d after %d, from index %d step %d to %d, %d",
			delta.Version, previous, old.Index(), old.DeltaStep(), now.Index(), now.DeltaStep())
	}
}

// shown is what readers see of a lease: what the registry knows of an override can change without it.
type shown struct {
	instance *Instance
	changed  Index
}

func contentOf(v *View) map[Key]shown {
	content := make(map[Key]shown, v.Len())
	for l := range v.Leases() {
		content[l.Key()] = shown{l.Instance, l.Changed}
	}
	return content
}
