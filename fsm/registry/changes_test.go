package registry

import (
	"fmt"
	"maps"
	"strings"
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
	need.That(t, record(MaxRemovalAge+30_000) == nil, "after a day it is not forgotten")
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
		shown   int64 // still visible at
		gone    int64 // gone from
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
	if want := "DOWN_1_UP_2_"; d.HashCode != want || g.View().Counts().HashCode() != want {
		t.Errorf("hash %s, want that of the whole registry, %s", d.HashCode, want)
	}
}

// A client that has any full answer from the window and applies the delta has the present content.
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
	need.Equal(t, delta.HashCode, now.Counts().HashCode(), "hash")
	if previous := old.Delta().Version; delta.Version < previous ||
		(delta.Version == previous) != (old.Index() == now.Index() && old.DeltaStep() == now.DeltaStep()) {
		t.Fatalf("version %d after %d, from index %d step %d to %d, %d",
			delta.Version, previous, old.Index(), old.DeltaStep(), now.Index(), now.DeltaStep())
	}
}

// shown is what readers see of a lease; the registry's details of an override can change without it.
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

// words returns a history as text: kind, times if more than one, status, and anything else.
func words(events []Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprint(&b, e.Kind)
		if e.Times != 1 {
			fmt.Fprintf(&b, " %dx", e.Times)
		}
		fmt.Fprintf(&b, " %s", e.Status)
		if e.For != 0 {
			fmt.Fprintf(&b, " for %d", e.For)
		}
		if e.Origin.Replicated() {
			b.WriteString(" replicated")
		}
		if e.By != (Act{}) {
			fmt.Fprintf(&b, " by %s: %s", e.By.Author, e.By.Reason)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func wantHistory(t *testing.T, v *View, key Key, want ...string) {
	t.Helper()
	expect.Equal(t, words(v.History(key)), strings.Join(want, "\n")+"\n", "history of %s:\n", key)
}

func TestHistoryTellsWhatHappened(t *testing.T) {
	replicated := func(op Op) func(g *rig) { return func(g *rig) { g.peer(op) } }
	client := func(op Op) func(g *rig) { return func(g *rig) { g.client(op) } }
	tests := []struct {
		name string
		do   []func(g *rig)
		want []string // after the first registration
	}{
		{"registered again", []func(g *rig){client(Register{instance(orders1, Up, 200)})}, []string{"registered again UP"}},
		{"registered with another status", []func(g *rig){client(Register{instance(orders1, Down, 200)})}, []string{"status changed DOWN"}},
		{"registration that was replaced", []func(g *rig){client(Register{instance(orders1, Up, 50)}), client(Register{instance(orders1, Down, 100)})}, []string{"registered again UP", "older registration kept out UP"}},
		{"another server's registration", []func(g *rig){replicated(Register{instance(orders1, Down, 200)})}, []string{"status changed DOWN replicated"}},
		{"another server's copy of the same", []func(g *rig){replicated(Register{instance(orders1, Up, 100)})}, nil},
		{"heartbeat", []func(g *rig){client(Renew{Key: orders1})}, nil},
		{"heartbeat that corrects the status", []func(g *rig){
			replicated(Renew{Key: orders1, LastDirty: 200, Overridden: OutOfService}), client(Renew{Key: orders1, LastDirty: 100}),
		}, []string{"overridden OUT_OF_SERVICE replicated", "status changed OUT_OF_SERVICE"}},
		{"override", []func(g *rig){
			client(SetOverride{Key: orders1, Status: Down, For: 5000, By: keeper}), client(DeleteOverride{Key: orders1, Fallback: Up, By: keeper}),
		}, []string{"overridden DOWN for 5000 by keeper: looks odd", "override ended UP by keeper: looks odd"}},
		{"override that ends", []func(g *rig){
			client(SetOverride{Key: orders1, Status: Down, For: 5000}), func(g *rig) { g.pass(5000); g.endings() },
		}, []string{"overridden DOWN for 5000", "override ended UP"}},
		{"override that changes nothing", []func(g *rig){
			client(SetOverride{Key: orders1, Status: Down}), client(SetOverride{Key: orders1, Status: Down}),
		}, []string{"overridden DOWN"}},
		{"quarantine", []func(g *rig){
			client(Quarantine{Key: orders1, For: 5000, By: keeper}), client(Quarantine{Key: orders1, By: keeper}),
		}, []string{"quarantined UP for 5000 by keeper: looks odd", "quarantine ended UP by keeper: looks odd"}},
		{"quarantine that ends", []func(g *rig){
			client(Quarantine{Key: orders1, For: 5000}), func(g *rig) { g.pass(5000); g.endings() },
		}, []string{"quarantined UP for 5000", "quarantine ended UP"}},
		{"metadata", []func(g *rig){client(UpdateMetadata{Key: orders1, Pairs: []Pair{{Key: "k", Value: "v"}}})}, []string{"metadata changed UP"}},
		{"cancel", []func(g *rig){client(Cancel{orders1})}, []string{"canceled UP"}},
		{"quarantine that ends after the cancel", []func(g *rig){
			client(Quarantine{Key: orders1, For: 5000}), client(Cancel{orders1}), client(Quarantine{Key: orders1, By: keeper}),
		}, []string{"quarantined UP for 5000", "canceled UP", "quarantine ended UP by keeper: looks odd"}},
		{"what happens again is counted", []func(g *rig){
			client(Register{instance(orders1, Up, 200)}), client(Register{instance(orders1, Up, 300)}), client(Register{instance(orders1, Up, 400)}),
		}, []string{"registered again 3x UP"}},
		{"what happens again in between is not", []func(g *rig){
			client(Register{instance(orders1, Up, 200)}), client(Register{instance(orders1, Up, 100)}), client(Register{instance(orders1, Up, 400)}),
		}, []string{"registered again UP", "older registration kept out UP", "registered again UP"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := withOrders(t)
			for _, do := range tt.do {
				do(g)
			}
			wantHistory(t, g.View(), orders1, append([]string{"registered UP"}, tt.want...)...)
		})
	}
}

func TestHistoryEventHasTheTimeOfTheLastOfItsKind(t *testing.T) {
	g := withOrders(t)
	first := g.now
	for range 3 {
		g.pass(5000)
		g.register(instance(orders1, Up, 100))
	}
	want := []Event{{At: first, Times: 1, Kind: EventRegistered, Status: Up}, {At: g.now, Times: 3, Kind: EventReregistered, Status: Up}}
	expect.Slice(t, g.View().History(orders1), want, "got")
}

func TestHistoryHasALateRenewalAfterOneAndAHalfIntervals(t *testing.T) {
	tests := []struct {
		interval int32
		silent   int64
		late     bool
	}{
		{30, 45_000, false},
		{30, 45_001, true},
		{1, 1500, false},
		{1, 1501, true},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d s, %d ms", tt.interval, tt.silent), func(t *testing.T) {
			g := newRig(t)
			in := instance(orders1, Up, 100)
			in.RenewalInterval = tt.interval
			g.register(in)
			g.pass(tt.silent)
			g.client(Renew{Key: orders1})
			g.pass(1)
			g.client(Renew{Key: orders1}) // in time again
			want := []string{"registered UP"}
			if tt.late {
				want = append(want, fmt.Sprintf("renewed late UP for %d", tt.silent))
			}
			wantHistory(t, g.View(), orders1, want...)
		})
	}
}

func TestHistoryCountsLateRenewals(t *testing.T) {
	g := withOrders(t)
	for _, silent := range []int64{50_000, 70_000, 60_000} {
		g.pass(silent)
		g.client(Renew{Key: orders1})
	}
	g.pass(80_000)
	g.client(SetOverride{Key: orders1, Status: Up}) // renews the lease, but is not the client
	wantHistory(t, g.View(), orders1, "registered UP", "renewed late 3x UP for 60000", "overridden UP")
}

func TestHistoryContinuesInTheNextLife(t *testing.T) {
	tests := []struct {
		name string
		pass int64 // between the removal and the registration
		want []string
	}{
		{"at once", 0, []string{"registered UP", "canceled UP", "registered DOWN"}},
		{"after the record was reduced", 300_000, []string{"registered UP", "canceled UP", "registered DOWN"}},
		{"not after it was forgotten", MaxRemovalAge + 60_000, []string{"registered DOWN"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := withOrders(t)
			g.client(Cancel{orders1})
			for left := tt.pass; left > 0; left -= maxLead / 2 { // the clock moves by at most an hour
				g.pass(min(left, maxLead/2))
				g.Advance(g.now)
			}
			if tt.pass < MaxRemovalAge {
				wantHistory(t, g.View(), orders1, tt.want[:2]...)
			}
			g.register(instance(orders1, Down, 200))
			wantHistory(t, g.View(), orders1, tt.want...)
		})
	}
}

func TestHistoryOfAnEvictionSaysHowLongItWasSilentAndWhyItWasNotWithheld(t *testing.T) {
	tests := []struct {
		name     string
		preserve []SelfPreservation
		want     string
	}{
		{"self-preservation off", nil, "evicted UP for 90001"},
		{"released", []SelfPreservation{{To: PreservationHeld, For: 1000, By: keeper}, {To: PreservationReleased, By: keeper}},
			"evicted UP for 120000 by keeper: self-preservation was released: looks odd"},
		{"released by its bound", []SelfPreservation{{To: PreservationOn}, {From: PreservationOn, To: PreservationReleased}},
			"evicted UP for 120000 by : self-preservation was released when its time had passed"},
		{"released, and off since", []SelfPreservation{{To: PreservationHeld, For: 1000, By: keeper}, {To: PreservationReleased, By: keeper}, {From: PreservationReleased, To: PreservationOff}},
			"evicted UP for 180000 by keeper: self-preservation was released: looks odd"},
		{"withheld until it was off by itself", []SelfPreservation{{To: PreservationHeld, For: 1000, By: keeper}, {To: PreservationHeld, For: 50_000, By: keeper}, {From: PreservationHeld, To: PreservationOff}},
			"evicted UP for 180000 by : self-preservation withheld it until it went off"},
		{"off before it ended", []SelfPreservation{{To: PreservationHeld, For: 1000, By: keeper}, {From: PreservationHeld, To: PreservationOff}},
			"evicted UP for 120000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			settings := DefaultSettings()
			settings.Bound = 60_000
			g.Configure(settings)
			g.register(instance(orders1, Up, 100))
			for _, op := range tt.preserve {
				res := g.client(op)
				need.That(t, res.Outcome == Done, "%+v: %+v", op, res)
				g.pass(60_000)
			}
			g.pass(max(0, 1000+90_001-g.now.Lease))
			g.client(Evict{Items: g.Expired(g.now.Lease, 1)})
			wantHistory(t, g.View(), orders1, "registered UP", tt.want)
		})
	}
}

// Nodes of all versions remember the same about an eviction: the end that a lease has without a link counts.
func TestHistoryOfAnEvictionDoesNotDependOnTheLink(t *testing.T) {
	g := newRig(t)
	g.apply(fromDC2, Register{instance(orders1, Up, 100)})
	g.client(SelfPreservation{To: PreservationHeld, For: 1000, By: keeper})
	g.pass(100_000) // after its end, but before the end that its datacenter gives it
	g.client(SelfPreservation{From: PreservationHeld, To: PreservationOff})
	g.pass(20_001)
	g.client(Evict{Items: g.Expired(g.now.Lease, 1)})
	wantHistory(t, g.View(), orders1, "registered UP replicated", "evicted UP for 120001 by : self-preservation withheld it until it went off")
}

func TestHistoryKeepsTheLast16Events(t *testing.T) {
	g, want := newRig(t), []Event(nil)
	for i := range 700 { // more than a byte counts
		g.pass(1000)
		status := []Status{Up, Down}[i%2]
		kind := EventStatus
		switch {
		case i == 0:
			kind = EventRegistered
		case i%300 == 0: // of the records of removals too
			g.client(Cancel{orders1})
			want = append(want, Event{At: g.now, Times: 1, Kind: EventCanceled, Status: Down})
			kind = EventRegistered
		}
		g.register(instance(orders1, status, int64(i+100)))
		want = append(want, Event{At: g.now, Times: 1, Kind: kind, Status: status})
		want = want[max(0, len(want)-16):]
		need.Slice(t, g.View().History(orders1), want, "after %d: got", i)
	}
}

func TestHistoryOfAnUnknownInstanceIsEmpty(t *testing.T) {
	g := withOrders(t)
	before := g.View()
	got := before.History(orders2)
	expect.That(t, len(got) == 0, "got %+v, want nothing", got)
	g.client(Cancel{orders1})
	g.register(instance(orders2, Up, 100)) // in its slot
	got = before.History(orders1)
	expect.That(t, len(got) == 0, "by a view from before it went: %+v, want nothing, least of all another's", got)
}
