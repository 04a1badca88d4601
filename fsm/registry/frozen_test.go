package registry

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Two registries live through the same steps; one is frozen and thawed halfway.
func TestThawedRegistryContinuesUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := New(), New()
		now := Stamp{Lease: 1000, Wall: startOfWall}
		steps := drawSteps.Draw(t, "steps")
		thaw := rapid.IntRange(0, len(steps)-1).Draw(t, "thawed before step")
		for i, s := range steps {
			if i == thaw {
				b = thawed(t, b)
			}
			now.Lease, now.Wall = now.Lease+s.pass, now.Wall+s.pass
			need.Equal(t, s.apply(b, now), s.apply(a, now), "step %d %+v: got", i, s)
			need.OKf(t, check(a), "step %d %+v", i, s)
			need.OKf(t, check(b), "step %d %+v, thawed", i, s)
		}
		need.Deep(t, b.Freeze(), a.Freeze(), "got")
		need.Deep(t, b.View().Delta(), a.View().Delta(), "delta")
		later := now.Lease + 700_000
		need.Slice(t, b.Expired(later, 100), a.Expired(later, 100), "expired")
		need.Equal(t, b.View().Freshness(later), a.View().Freshness(later), "freshness")
		checkApps(t, a.View(), b.View())
		for topic, at := range lastChanges(a.View()) {
			now, _ := b.View().LastChange(topic)
			need.Equal(t, now, at, "%+v last changed at", topic)
		}
	})
}

// lastChanges returns the indexes of the last changes of all topics.
func lastChanges(v *View) map[Topic]Index {
	all := map[Topic]Index{}
	note := func(t Topic) { all[t], _ = v.LastChange(t) }
	for _, t := range wholeTopics {
		note(t)
	}
	for _, name := range []string{"BILLING", "ORDERS", "WEB"} {
		for _, kind := range []TopicKind{InstancesTopic, ServiceTopic, HealthTopic} {
			note(Topic{kind, name})
		}
	}
	for _, name := range []string{"", "n1", "n2"} {
		note(Topic{NodeTopic, name})
		note(Topic{NodeChecksTopic, name})
	}
	return all
}

func thawed(t *rapid.T, r *Registry) *Registry {
	frozen := r.Freeze()
	thawed, err := Thaw(frozen)
	need.OKf(t, err, "thaw")
	need.Deep(t, thawed.Freeze(), frozen, "thawed")
	return thawed
}

// checkApps checks that no application of a thawed registry seems older than it is.
func checkApps(t *rapid.T, want, got *View) {
	for app := range want.Apps() {
		thawed, ok := got.App(app.Name)
		need.That(t, ok && thawed.Changed >= app.Changed && thawed.Changed <= max(app.Changed, got.tables.pruned),
			"application %s: %+v, want changed at %d or at what was pruned, %d", app.Name, thawed, app.Changed, got.tables.pruned)
	}
}

func TestThawedApplicationIsNotOlderThanItWas(t *testing.T) {
	g := withOrders(t, orders2)
	g.client(Cancel{orders2})
	for range 26 { // until the record of it is pruned
		g.pass(maxLead)
		g.Advance(g.now)
	}
	f := g.Freeze()
	need.That(t, f.Pruned == 3 && len(f.Removals) == 0, "pruned to %d, %d records, want 3, none", f.Pruned, len(f.Removals))
	thawed := need.Got(Thaw(g.Freeze()))(t)
	app, _ := thawed.View().App("ORDERS")
	expect.That(t, app.Changed == 3, "changed at %d, want 3", app.Changed)
}

// lie is a change after which a frozen state contradicts itself, and what Thaw says about it.
type lie struct {
	name  string
	spoil func(f *Frozen)
	want  string
}

// refusesLies checks that Thaw accepts a true state and refuses each lie about it.
func refusesLies(t *testing.T, truth func(g *rig), lies []lie) {
	t.Helper()
	for _, l := range lies {
		t.Run(l.name, func(t *testing.T) {
			g := newRig(t)
			truth(g)
			f := g.Freeze()
			need.OKf(t, expect.Err(Thaw(f)), "the true state")
			l.spoil(&f)
			expect.ErrorSays(t, expect.Err(Thaw(f)), l.want, "got")
		})
	}
}

// aboutLease returns a lie about one of the leases.
func aboutLease(at int, change func(l *Lease)) func(f *Frozen) {
	return func(f *Frozen) {
		l := *f.Leases[at].Lease
		change(&l)
		f.Leases[at].Lease = &l
	}
}

// Each inconsistency that a snapshot can have, alone.
func TestThawRefusesAnInconsistentState(t *testing.T) {
	lease := func(change func(l *Lease)) func(f *Frozen) { return aboutLease(1, change) }
	record := func(at int, change func(m *Removal, l *Lease)) func(f *Frozen) {
		return func(f *Frozen) {
			l := *f.Removals[at].Lease
			change(&f.Removals[at], &l)
			f.Removals[at].Lease = &l
		}
	}
	transition := func(change func(p *Preservation)) func(f *Frozen) {
		return func(f *Frozen) { change(&f.Transitions[0]) }
	}
	rename := func(l *Lease, key Key) {
		i := *l.Instance
		i.App, i.InstanceID = key.App, key.ID
		l.Instance = &i
	}
	refusesLies(t, func(g *rig) {
		for _, key := range []Key{orders1, orders2, {App: "USERS", ID: "1"}, {App: "USERS", ID: "2"}} {
			g.register(instance(key, Up, 100))
		}
		g.client(Cancel{Key{App: "USERS", ID: "1"}})
		g.client(Cancel{Key{App: "USERS", ID: "2"}})
		g.in(PreservationHeld)
	}, []lie{
		{"slot outside the table", lease(func(l *Lease) { l.Handle.Slot = 9 }), "slot 1 is not there once"},
		{"slot twice", lease(func(l *Lease) { l.Handle.Slot = 0 }), "slot 1 is not there once"},
		{"free slot in use", func(f *Frozen) { f.Free[0] = 1 }, "slot 2 is not there once"},
		{"slots without use", func(f *Frozen) { f.Slots = 5 }, "5 slots, but 2 leases and 2 free"},
		{"generation 0", lease(func(l *Lease) { l.Handle.Gen = 0 }), "generation 0 is not in 1 to 4"},
		{"generation not given out", lease(func(l *Lease) { l.Handle.Gen = 5 }), "generation 5 is not in 1 to 4"},
		{"generation twice", lease(func(l *Lease) { l.Handle.Gen = 1 }), "generation 1 is there twice"},
		{"order", func(f *Frozen) { slices.Reverse(f.Leases) }, "is not after"},
		{"instance twice", lease(func(l *Lease) { rename(l, orders1) }), "is not after"},
		{"live and removed", lease(func(l *Lease) { l.EvictedAt = 1 }), "it is live and was removed"},
		{"registered after its change", lease(func(l *Lease) { l.Registered = 9 }), "registered at 9"},
		{"change not made yet", lease(func(l *Lease) { l.Changed = 9 }), "index 9, but the last one given out is 6"},
		{"index twice", lease(func(l *Lease) { l.Changed, l.Registered, l.Described, l.ByClient, l.Defined = 1, 1, 1, 1, 1 }), "index 1 is there twice"},
		{"never defined", lease(func(l *Lease) { l.Defined = 0 }), "defined at 0"},
		{"defined after its change", lease(func(l *Lease) { l.Defined = 9 }), "defined at 9"},
		{"duration", lease(func(l *Lease) { l.Duration = 0 }), "duration 0 s"},
		{"interval", lease(func(l *Lease) { l.Interval = 4000 }), "renewal interval 4000 s"},
		{"renewed in the future", func(f *Frozen) { f.Leases[0].Renewed.Lease = 1 << 40 }, "after the lease clock"},
		{"record of a live instance", record(0, func(_ *Removal, l *Lease) { rename(l, orders1) }), "is live or was removed twice"},
		{"removed twice", func(f *Frozen) { f.Removals[1].Lease = f.Removals[0].Lease }, "is live or was removed twice"},
		{"records' order", func(f *Frozen) { slices.Reverse(f.Removals) }, "is not after"},
		{"kind", record(0, func(m *Removal, _ *Lease) { m.Kind = Live }), "unknown kind 0"},
		{"no time of removal", record(0, func(_ *Removal, l *Lease) { l.EvictedAt = 0 }), "without its time"},
		{"record in the future", record(1, func(_ *Removal, l *Lease) { l.Changed = 9 }), "index 9, but the last one given out is 6"},
		{"reduced after full", record(1, func(m *Removal, _ *Lease) { m.Full = false }), "reduced, but an older one is not"},
		{"record that is pruned", func(f *Frozen) { f.Pruned = 5 }, "index 5 is not after 5"},
		{"pruned in the future", func(f *Frozen) { f.Pruned, f.Removals = 9, nil }, "index 9, but the last one given out is 6"},
		{"life begun after its registration", lease(func(l *Lease) { l.BeganLease = l.StartedLease + 1 }), "its life began at 1001"},
		{"registered after its renewal", lease(func(l *Lease) { l.StartedLease++ }), "its registration was at 1001"},
		{"bound", func(f *Frozen) { f.Settings.Bound = -1 }, "a bound of -1 ms"},
		{"update", func(f *Frozen) { f.Settings.ExpectationUpdate = -1 }, "an update every -1 ms"},
		{"transitions", func(f *Frozen) { f.Transitions = make([]Preservation, 51) }, "51 transitions"},
		{"transition in the future", transition(func(p *Preservation) { p.Since.Lease = 1001 }), "changed at 1001, after a change at 0, at a lease clock of 1000"},
		{"transitions' order", transition(func(p *Preservation) { p.Since.Lease = -1 }), "changed at -1"},
		{"hold without an end", transition(func(p *Preservation) { p.Until = 0 }), "held without an end"},
		{"self-preservation that nothing led to", func(f *Frozen) { f.Preservation.State = PreservationOn }, "not what its last transition made of it"},
		{"self-preservation without a transition", func(f *Frozen) { f.Transitions = nil }, "not what its last transition made of it"},
		{"minute in the future", func(f *Frozen) { f.Expectation.Minute = 1 }, "in minute 1, at a lease clock of 1000"},
		{"minute before the first", func(f *Frozen) { f.Expectation.Minute = -1 }, "in minute -1"},
		{"update that does not come", func(f *Frozen) { f.Expectation.NextUpdate = 901_001 }, "updated at 901001"},
		{"recent queue", func(f *Frozen) { f.Canceled = make([]Recent, 1001) }, "1001 entries"},
	})
}

func TestHandleGenerationsContinueBeyond32Bits(t *testing.T) {
	g := newRig(t)
	g.handles.generation = math.MaxUint32 - 1
	for range 3 {
		g.register(instance(orders1, Up, 0))
		g.client(Cancel{orders1})
	}
	h := g.register(instance(orders1, Up, 0)).Handle
	expect.That(t, h.Gen == math.MaxUint32+3, "generation %d, want %d", h.Gen, uint64(math.MaxUint32+3))
	res := g.client(Renew{Handle: h})
	expect.That(t, res.Outcome == Done, "renewal by the handle: %+v, want it done", res)
	expect.OKf(t, expect.Err(Thaw(g.Freeze())), "the frozen state is refused")
}

func TestThawRefusesInconsistentActsAndHistories(t *testing.T) {
	lease := func(change func(l *Lease)) func(f *Frozen) { return aboutLease(0, change) }
	override := func(change func(o *Override)) func(f *Frozen) {
		return lease(func(l *Lease) {
			o := *l.Override
			change(&o)
			l.Override = &o
		})
	}
	quarantine := func(change func(q *Quarantined)) func(f *Frozen) {
		return lease(func(l *Lease) {
			q := *l.Quarantine
			change(&q)
			l.Quarantine = &q
		})
	}
	lived := func(event int, change func(*Event)) func(*Frozen) {
		return func(f *Frozen) { f.Leases[0].History = spoilt(f.Leases[0].History, event, change) }
	}
	refusesLies(t, func(g *rig) {
		g.register(instance(orders1, Up, 100))
		g.client(SetOverride{Key: orders1, Status: OutOfService, For: 5000})
		g.client(Quarantine{Key: orders1, For: 5000})
		g.register(instance(orders2, Up, 100))
		g.client(Cancel{orders2})
		g.register(instance(Key{App: "USERS", ID: "1"}, Up, 100))
	}, []lie{
		{"no override", lease(func(l *Lease) { l.Instance = l.Instance.with(Up, Unknown, 100) }), "override that it does not have"},
		{"overridden never", override(func(o *Override) { o.Set = 0 }), "overridden at 0"},
		{"overridden later", override(func(o *Override) { o.Set = 9 }), "overridden at 9"},
		{"quarantined never", quarantine(func(q *Quarantined) { q.Set = 0 }), "quarantined at 0"},
		{"quarantined later", quarantine(func(q *Quarantined) { q.Set = 9 }), "quarantined at 9"},
		{"two overrides set together", func(f *Frozen) {
			other := *f.Leases[1].Lease
			other.Override = f.Leases[0].Lease.Override
			other.Instance = other.Instance.with(Up, OutOfService, 100)
			f.Leases[1].Lease = &other
		}, "two overrides were set at 2"},
		{"two quarantines set together", func(f *Frozen) {
			other := *f.Leases[1].Lease
			other.Quarantine = f.Leases[0].Lease.Quarantine
			f.Leases[1].Lease = &other
		}, "two quarantines were set at 3"},
		{"event never", lived(0, func(e *Event) { e.Times = 0 }), "never happened"},
		{"event in the future", lived(2, func(e *Event) { e.At.Lease = 1 << 40 }), "in the future"},
		{"events out of order", lived(1, func(e *Event) { e.At.Lease = 1 }), "out of order"},
		{"event of one that is gone", func(f *Frozen) {
			f.Removals[0].History = spoilt(f.Removals[0].History, 0, func(e *Event) { e.Times = 0 })
		}, "removal of ORDERS/orders-2"},
	})
}

// spoilt returns a history with one event changed.
func spoilt(h History, event int, change func(*Event)) History {
	events := h.Events()
	change(&events[event])
	return HistoryOf(events)
}
