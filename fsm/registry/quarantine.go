package registry

import (
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// perform hides an instance, or ends its quarantine. Its lease goes on and is not renewed: the operator is not the
// client. A removed instance cannot be quarantined, but the quarantine that waits for it in its record can be ended.
func (op Quarantine) perform(r *Registry, _ uint64, origin Origin) Result {
	l := r.handles.byKey(op.Key)
	switch {
	case l == nil && op.For <= 0:
		return r.endQuarantineOfRemoved(origin, op)
	case l == nil:
		return Result{Outcome: NotFound}
	case op.For <= 0:
		return r.show(origin, l, op.By)
	}
	q := &Quarantined{By: op.By, At: r.clock, Until: order.Later(r.clock.Lease, op.For), Set: r.Next()}
	if old := l.Quarantine; old != nil && old.By == q.By && old.Until == q.Until {
		return Result{}
	}
	hidden := *l
	hidden.Quarantine = q
	hidden.Edit++
	return r.exchange(l, &hidden, ActionModified, origin, Event{Kind: EventQuarantined, For: op.For, By: op.By})
}

// perform lists an instance again, unless the epoch is over or another quarantine has replaced it.
func (op EndQuarantine) perform(r *Registry, term uint64, origin Origin) Result {
	if !r.epoch.Leads(term, op.Epoch) {
		return Result{Outcome: Refused}
	}
	l := r.handles.byHandle(op.Handle)
	if l == nil || l.Quarantine == nil || l.Quarantine.Set != op.Set {
		return Result{Outcome: NotFound}
	}
	return r.show(origin, l, Act{})
}

// show lists an instance again, as a new one for readers.
func (r *Registry) show(origin Origin, l *Lease, by Act) Result {
	if l.Quarantine == nil {
		return Result{}
	}
	shown := *l
	shown.Quarantine = nil
	shown.Edit++
	return r.exchange(l, &shown, ActionAdded, origin, Event{Kind: EventQuarantineEnded, By: by})
}

// endQuarantineOfRemoved ends the quarantine of a removed instance: it will be listed when it registers again. No
// list changes, so it takes no Index; from level 3 on Count says that it ended one.
func (r *Registry) endQuarantineOfRemoved(origin Origin, op Quarantine) Result {
	rec, ok := r.record(op.Key)
	if !ok {
		return Result{Outcome: NotFound}
	}
	if rec.Lease.Quarantine == nil {
		if r.level >= Level3 {
			return Result{Outcome: NotFound}
		}
		return Result{}
	}
	l := *rec.Lease
	l.Quarantine = nil
	r.amendWith(rec, l, origin, Event{Kind: EventQuarantineEnded, By: op.By})
	return Result{Count: int(one(r.level >= Level3))}
}
