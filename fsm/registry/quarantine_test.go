package registry

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// keeper is an operator.
var keeper = Act{Author: "keeper", Reason: "looks odd"}

// endings applies what is due now, as the leader does.
func (g *rig) endings() []Result {
	var results []Result
	for _, op := range g.Ending(g.now.Lease) {
		results = append(results, g.client(op))
	}
	return results
}

func (g *rig) find(key Key) *Lease {
	g.t.Helper()
	l, ok := g.View().Find(key)
	if !ok {
		g.t.Fatalf("%s has no lease", key)
	}
	return l
}

func TestQuarantineHidesAnInstanceFromEveryReader(t *testing.T) {
	g := newRig(t)
	for _, key := range []Key{orders1, orders2, billing1} {
		in := instance(key, Up, 100)
		in.SecureVIP = "s"
		g.register(in)
	}
	g.pass(5000)
	want := Result{Index: 4}
	need.Equal(t, g.client(Quarantine{Key: orders1, For: 60_000, By: keeper}), want, "got")
	g.client(Quarantine{Key: billing1, For: 60_000})
	v := g.View()
	wantKeys(t, "all", keysOf(v.Leases()), orders2)
	wantKeys(t, "by id", keysOf(v.ByID(orders1.ID)))
	wantKeys(t, "by VIP", keysOf(v.ByVIP("ORDERS")), orders2)
	wantKeys(t, "by secure VIP", keysOf(v.BySecureVIP("s")), orders2)
	wantKeys(t, "quarantined", keysOf(v.Quarantined), billing1, orders1)
	_, ok := v.Lease(orders1)
	expect.That(t, !ok, "it has a lease for readers")
	_, ok = v.App("BILLING")
	expect.That(t, !ok, "an application whose only instance is quarantined exists")
	app, _ := v.App("ORDERS")
	expect.That(t, app.Len() == 1 && app.Changed == 4, "application of %d instances, changed at %d; want 1, 4", app.Len(), app.Changed)
	expect.That(t, v.Len() == 1 && v.Total() == 3 && v.HashCode() == "UP_1_",
		"%d listed of %d, hash %s; want 1 of 3, UP_1_", v.Len(), v.Total(), v.HashCode())
	l := g.find(orders1)
	details := Quarantined{By: keeper, At: g.now, Until: g.now.Lease + 60_000, Set: 4}
	expect.That(t, l.Quarantine != nil && *l.Quarantine == details && l.Instance.Status == Up && l.Registered == 1,
		"got %+v, %+v; want it UP and quarantined %+v", l, l.Quarantine, details)
	got := v.LastRenewal(l)
	expect.That(t, got.Lease == 1000, "renewed at %d by the operator, want only by its client at 1000", got.Lease)
}

func TestQuarantinedInstanceIsRemovedInTheDeltaAndHiddenInTheChangeList(t *testing.T) {
	g := newRig(t)
	a, b, c := Key{App: "ORDERS", ID: "a"}, Key{App: "ORDERS", ID: "b"}, Key{App: "ORDERS", ID: "c"}
	for _, key := range []Key{a, b, c} {
		g.register(instance(key, Up, 100))
	}
	g.client(Quarantine{Key: a, For: 60_000})
	g.client(Cancel{b})
	d := g.View().Delta()
	shown := ""
	for _, l := range d.Leases {
		shown += l.Key().ID + " " + l.Action.String() + ", "
	}
	want := "c ADDED, a DELETED, b DELETED, "
	expect.That(t, shown == want && d.HashCode == "UP_1_", "delta %s hash %s, want %s UP_1_", shown, d.HashCode, want)
	expect.That(t, g.find(a).Action != ActionDeleted, "the lease itself was marked as removed")
	changes, err := g.View().Changes(3, 0)
	expect.That(t, err == nil && len(changes) == 2 && changes[0].Kind == Hidden && changes[0].Lease == g.find(a) && changes[1].Kind == Canceled,
		"changes %+v, %v; want the hidden lease and the cancel", changes, err)
	g.client(Quarantine{Key: a, By: keeper}) // now
	expect.Equal(t, g.inDelta()[a], ActionAdded, "after its end:")
	changes, _ = g.View().Changes(5, 0)
	expect.That(t, len(changes) == 1 && changes[0].Kind == Live && changes[0].Index == 6, "after its end: %+v, want a live lease at 6", changes)
}

func TestQuarantinedInstanceThatFallsSilentIsEvicted(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.client(Quarantine{Key: orders1, For: 600_000})
	g.pass(90_001)
	res := g.client(Evict{Items: g.Expired(g.now.Lease, 10)})
	_, ok := g.View().Find(orders1)
	expect.That(t, res.Count == 1 && !ok, "got %+v, found %t; want it evicted", res, ok)
	got := g.Ending(g.now.Lease + 600_000)
	expect.That(t, len(got) == 0, "%v is to end, want nothing: it is gone", got)
}

func TestQuarantineEndsAtItsTime(t *testing.T) {
	g := newRig(t)
	g.Establish(Epoch{Term: 2, Index: 7}, "cluster")
	handle := g.register(instance(orders1, Up, 100)).Handle
	g.client(Quarantine{Key: orders1, For: 60_000, By: keeper})
	g.pass(59_999)
	got := g.Ending(g.now.Lease)
	need.That(t, len(got) == 0, "before its time: %v", got)
	g.pass(1)
	want := Op(EndQuarantine{Epoch: Epoch{Term: 2, Index: 7}, Handle: handle, Set: 2})
	got = g.Ending(g.now.Lease)
	need.That(t, slices.Equal(got, []Op{want}), "at its time: %v, want %v", got, want)
	expect.Equal(t, g.client(want), (Result{Index: 3}), "got")
	l := g.lease(orders1)
	expect.That(t, l.Quarantine == nil && l.Action == ActionAdded && l.Changed == 3 && l.Registered == 1,
		"got %+v, want it listed as added, in the same lease", l)
	got = g.Ending(g.now.Lease)
	expect.That(t, len(got) == 0, "afterwards: %v", got)
}

func TestQuarantineSetAgain(t *testing.T) {
	tests := []struct {
		name    string
		pass    int64
		again   Quarantine
		changes bool
	}{
		{"the same at once", 0, Quarantine{For: 60_000, By: keeper}, false},
		{"the same later ends later", 1000, Quarantine{For: 60_000, By: keeper}, true},
		{"shorter", 0, Quarantine{For: 30_000, By: keeper}, true},
		{"by another", 0, Quarantine{For: 60_000}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, Up, 100))
			g.client(Quarantine{Key: orders1, For: 60_000, By: keeper})
			g.pass(tt.pass)
			tt.again.Key = orders1
			res := g.client(tt.again)
			expect.That(t, res.Outcome == Done && (res.Index != 0) == tt.changes, "got %+v, want a change: %t", res, tt.changes)
			expect.Equal(t, g.find(orders1).Quarantine.Until, g.now.Lease+tt.again.For, "until")
		})
	}
}

func TestQuarantineOfAnUnknownInstanceIsNotFound(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	for _, op := range []Quarantine{{Key: orders2, For: 1000}, {Key: orders2}} {
		expect.Equal(t, g.client(op), (Result{Outcome: NotFound}), "%+v of an unknown instance:", op)
	}
	expect.Equal(t, g.client(Quarantine{Key: orders1}), Result{}, "end of a quarantine that is none, done without a change:")
}

func TestQuarantineThatNeverEndsEndsWithTheClock(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.client(Quarantine{Key: orders1, For: 1<<63 - 1})
	got := g.Ending(g.now.Lease + MaxRemovalAge)
	expect.That(t, len(got) == 0, "%v is to end", got)
}

func TestQuarantineSurvivesARemoval(t *testing.T) {
	evict := func(g *rig) {
		g.pass(90_001)
		g.client(Evict{Items: g.Expired(g.now.Lease, 10)})
	}
	tests := []struct {
		name   string
		remove func(g *rig)
		pass   int64
		hidden bool
	}{
		{"cancel", func(g *rig) { g.client(Cancel{orders1}) }, 1000, true},
		{"eviction", evict, 1000, true},
		{"record that was reduced", func(g *rig) { g.client(Cancel{orders1}) }, 300_000, true},
		{"until its time", func(g *rig) { g.client(Cancel{orders1}) }, 599_999, true},
		{"not beyond its time", func(g *rig) { g.client(Cancel{orders1}) }, 600_000, false},
		{"not if it was ended meanwhile", func(g *rig) { g.client(Cancel{orders1}); g.client(Quarantine{Key: orders1, By: keeper}) }, 1000, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, Up, 100))
			g.client(Quarantine{Key: orders1, For: 600_000, By: keeper})
			until := g.find(orders1).Quarantine.Until
			tt.remove(g)
			g.pass(tt.pass)
			res := g.client(Register{instance(orders1, Up, 200)})
			l := g.find(orders1)
			need.That(t, (l.Quarantine != nil) == tt.hidden, "registered again: quarantine %+v, want one: %t", l.Quarantine, tt.hidden)
			if !tt.hidden {
				return
			}
			q := l.Quarantine
			expect.That(t, q.Until == until && q.By == keeper && q.Set == res.Index && q.Set == l.Registered,
				"quarantine %+v, want by the same until %d, set at %d", q, until, res.Index)
			g.pass(until - g.now.Lease)
			got := g.endings()
			expect.That(t, len(got) == 1 && got[0].Outcome == Done, "at its time: %+v, want it ended", got)
			g.lease(orders1)
		})
	}
}

// Whatever happens to an instance here, it is hidden exactly from its quarantine until that ends.
func TestQuarantineHidesAnInstanceFromItsStartToItsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		now := Stamp{Lease: 1000, Wall: startOfWall}
		until := map[Key]int64{} // of those in quarantine, live or gone
		for _, s := range drawSteps.Draw(t, "steps") {
			if _, elsewhere := s.op.(Replica); elsewhere {
				continue
			}
			now.Lease, now.Wall = now.Lease+s.pass, now.Wall+s.pass
			before := r.View()
			ending := r.Ending(now.Lease)
			s.apply(r, now)
			if q, ok := s.op.(Quarantine); ok && q.For <= 0 {
				delete(until, q.Key)
			} else if _, live := before.Find(q.Key); ok && live {
				until[q.Key] = now.Lease + q.For
			}
			for key, at := range until {
				_, live := before.Find(key)
				ended := s.end && slices.ContainsFunc(ending, func(op Op) bool { _, ok := op.(EndQuarantine); return ok && live && at <= now.Lease })
				if ended || !live && at <= now.Lease { // that of a removed instance is not ended: it has no effect any more
					delete(until, key)
				}
			}
			v := r.View()
			for l := range v.All() {
				at, want := until[l.Key()]
				need.That(t, want == (l.Quarantine != nil) && (!want || l.Quarantine.Until == at),
					"%s after %+v: quarantine %+v, want one: %t, until %d", l.Key(), s, l.Quarantine, want, at)
			}
		}
	})
}

// Documents of an application are made anew whenever it changed.
func TestQuarantinedInstanceChangesItsApplication(t *testing.T) {
	tests := []struct {
		name string
		ops  []Op
	}{
		{"registration", []Op{Register{instance(orders1, Down, 200)}}},
		{"override", []Op{SetOverride{Key: orders1, Status: Down}}},
		{"longer quarantine", []Op{Quarantine{Key: orders1, For: 120_000}}},
		{"end of the quarantine", []Op{Quarantine{Key: orders1}}},
		{"cancel", []Op{Cancel{orders1}}},
		{"registration after a cancel", []Op{Cancel{orders1}, Register{instance(orders1, Up, 200)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, Up, 100))
			g.register(instance(orders2, Up, 100))
			g.client(Quarantine{Key: orders1, For: 60_000})
			for _, op := range tt.ops {
				g.client(op)
			}
			thawed := need.Got(Thaw(g.Freeze()))(t)
			for name, v := range map[string]*View{"live": g.View(), "thawed": thawed.View()} {
				app, _ := v.App("ORDERS")
				expect.That(t, app.Changed == Index(3+len(tt.ops)), "%s: changed at %d, want %d", name, app.Changed, 3+len(tt.ops))
			}
		})
	}
}

func TestEndingIsInTheOrderOfTime(t *testing.T) {
	g := newRig(t)
	var want []Op
	for i, ms := range []int64{3000, 1000, 2000, 1000} {
		key := Key{App: "ORDERS", ID: fmt.Sprint(i)}
		g.register(instance(key, Up, 100))
		g.client(SetOverride{Key: key, Status: Down, For: ms})
		g.client(Quarantine{Key: key, For: ms})
	}
	for _, slot := range []uint32{1, 3, 2, 0} { // of one time: as they were set
		h := Handle{Slot: slot, Gen: uint64(slot + 1)}
		set := Index(slot*3 + 2)
		want = append(want, EndOverride{Handle: h, Set: set}, EndQuarantine{Handle: h, Set: set + 1})
	}
	expect.Slice(t, g.Ending(g.now.Lease+3000), want, "got")
	expect.Slice(t, g.Ending(g.now.Lease+2999), want[:6], "a moment before the last: got")
}
