package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestThawRefusesActsAndHistoriesThatLie(t *testing.T) {
	lease := func(change func(l *Lease)) func(f *Frozen) {
		return func(f *Frozen) {
			l := *f.Leases[0].Lease
			change(&l)
			f.Leases[0].Lease = &l
		}
	}
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
	tests := []struct {
		name  string
		spoil func(f *Frozen)
		want  string
	}{
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, Up, 100))
			g.client(SetOverride{Key: orders1, Status: OutOfService, For: 5000})
			g.client(Quarantine{Key: orders1, For: 5000})
			g.register(instance(orders2, Up, 100))
			g.client(Cancel{orders2})
			g.register(instance(Key{"USERS", "1"}, Up, 100))
			f := g.Freeze()
			need.OKf(t, expect.Err(Thaw(f)), "the true state")
			tt.spoil(&f)
			expect.ErrorSays(t, expect.Err(Thaw(f)), tt.want, "got")
		})
	}
}

// spoilt is a history of which one event is another one.
func spoilt(h History, event int, change func(*Event)) History {
	events := h.Events()
	change(&events[event])
	return HistoryOf(events)
}
