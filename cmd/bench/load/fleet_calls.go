package load

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

// renew sends a heartbeat, and registers the instance again at once if it is not known, as stock clients do. It
// reports whether what came of it is certain.
func (f *fleet) renew(ctx context.Context, c *caller, i *instance, due time.Time) (certain bool) {
	a := c.call(ctx, i.renewal(i.version), false)
	f.load.record(trial.Heartbeat, i.home, due, a)
	switch a.outcome {
	case trial.Done:
		f.book.Renewed(i.id, a.done)
	case trial.NotFound:
		f.book.Forgotten(i.id, a.done)
		if f.forget(i) {
			return f.enter(ctx, c, i, a.done)
		}
	}
	return true
}

// renewOnce renews an instance whose heartbeats have no schedule. The next one is due an interval after this one was,
// however late this one is.
func (f *fleet) renewOnce(ctx context.Context, c *caller, i *instance, due time.Time) (certain bool) {
	f.mu.Lock()
	i.beat = due.Add(f.interval)
	f.mu.Unlock()
	return f.renew(ctx, c, i, due)
}

// forget notes that an instance is not registered, and reports whether its client is to register it again.
func (f *fleet) forget(i *instance) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i.registered = false
	return i.mode == living
}

// enter registers an instance in its next version. After an unknown outcome it is to be repeated: the
// conflict rule makes nothing of the older version, whenever that arrives.
func (f *fleet) enter(ctx context.Context, c *caller, i *instance, due time.Time) (certain bool) {
	i.version++
	f.book.Registering(i.id, i.version, time.Now())
	a := c.call(ctx, i.registration(i.version), false)
	f.load.record(trial.Register, i.home, due, a)
	tell(f.book, i.id, i.version, a, f.book.Registering, f.book.Registered)
	if a.outcome != trial.Done {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i.registered = true
	i.beat = a.done.Add(f.interval)
	if !i.known && i.leaves.IsZero() {
		if f.awaited--; f.awaited == 0 {
			close(f.complete)
		}
	}
	i.known = true
	return true
}

// leave cancels an instance. That nobody knows it is an answer, too, but no promise that it is listed nowhere:
// the book hears only that its client is gone.
func (f *fleet) leave(ctx context.Context, c *caller, i *instance, due time.Time) (certain bool) {
	i.version++
	f.book.Canceling(i.id, i.version, time.Now())
	a := c.call(ctx, i.cancel(), false)
	f.load.record(trial.Cancel, i.home, due, a)
	tell(f.book, i.id, i.version, a, f.book.Canceling, f.book.Canceled)
	certain = a.outcome.Answered()
	f.mu.Lock()
	defer f.mu.Unlock()
	i.registered, i.canceling = false, !certain
	if certain && !i.leaves.IsZero() {
		i.mode = gone
		if a.outcome == trial.NotFound {
			f.book.Died(i.id, a.done)
		}
	}
	return certain
}

// tell tells the book how a write ended that it knows to have begun. begin and done are what it is told of
// writes of this kind. A write that was not found, or whose outcome nobody knows, stays open.
func tell(b *truth.Book, id string, version int64, a answer, begin, done func(id string, version int64, at time.Time)) {
	if a.doubtful {
		begin(id, version, a.done) // the earlier try, whose answer nobody will hear
	}
	switch a.outcome {
	case trial.Done:
		done(id, version, a.done)
	case trial.Refused, trial.Unreached:
		b.NotDone(id, version)
	}
}
