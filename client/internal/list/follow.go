package list

import (
	"context"
	"errors"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

var (
	// errReset means that the server does not know what happened after the index, so its whole list is needed.
	errReset = errors.New("changes may have been missed")
	// errHeld means that it is time to fetch everything again, because the guard holds instances.
	errHeld = errors.New("instances are held")
)

// watch follows a server from the list's index on for as long as possible. Another server with the same history
// continues from there, so that no full response is needed.
func (r *refresher) watch(ctx context.Context) step {
	start := time.Now()
	err := r.follow(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if time.Since(start) > wait.LongestRetry {
		r.failures, r.resets = 0, 0
	}
	switch {
	case errors.Is(err, errHeld):
		return r.fetchFull
	case errors.Is(err, errReset):
		return r.reset(ctx)
	}
	r.count("watch", err)
	if errors.Is(err, transport.ErrNeedsRollcall) || errors.As(err, new(final)) {
		return r.fallBack(ctx, err)
	}
	return r.failOver(ctx, err)
}

// follow reads the stream of one server until it ends, which is always an error. While something is held it ends at
// the latest after an Interval: a response beside the stream might be older than the stream.
func (r *refresher) follow(ctx context.Context) error {
	if r.guard.held() > 0 {
		bounded, cancel := context.WithTimeoutCause(ctx, r.config.Interval, errHeld)
		defer cancel()
		ctx = bounded
	}
	r.stream.Index = r.index
	err := r.stream.Follow(ctx, r.server)
	r.flush()
	return err
}

// apply applies an event. Changes are published once everything that arrived was applied.
func (r *refresher) apply(e Event) error {
	switch e := e.(type) {
	case Start: // at once the server streams what happened since the index
		r.count("watch", nil)
		r.recordSource(Watch, r.server.URL, time.Now())
		r.setErr(nil)
		if !r.cutSince.IsZero() {
			r.config.Log.Info("the list of instances is watched again", "app", r.config.App, "server", r.server.URL, "index", r.index)
		}
		r.cutSince, r.unwatchable = time.Time{}, ""
	case Reset:
		return errReset
	case Change:
		if r.edit == nil {
			r.edit = r.list.Load().edit()
		}
		r.guard.release(e.Key())
		if e.Instance == nil || e.Action == registry.ActionDeleted.String() {
			r.edit.remove(e.Key()) // without a document it has only a removal record left
		} else {
			r.edit.set(e.Instance.Instance)
		}
	}
	return nil
}

// confirm dates the list once everything from the server was applied, even if that was only a mark.
func (r *refresher) confirm() {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.Source == Watch {
		r.asOf = time.Now()
	}
}

// flush publishes the changes of the stream.
func (r *refresher) flush() {
	if r.edit == nil && r.stream.Index == r.index {
		return
	}
	next := r.list.Load()
	if r.edit != nil {
		next = r.edit.list()
	}
	r.edit, r.index = nil, r.stream.Index
	r.publish(next)
	r.save()
}

// reset fetches everything, because the list's index has been lost. A server that says so about its own lists
// must not be asked for them in quick succession.
func (r *refresher) reset(ctx context.Context) step {
	r.index = ""
	r.resets++
	if r.resets == 1 {
		return after(ctx, wait.Retry(0), r.fetchFull)
	}
	return after(ctx, wait.BackOff(r.config.Interval, r.resets-1), r.fetchFull)
}

// failOver continues at another server when a stream was cut off, or could not be opened.
func (r *refresher) failOver(ctx context.Context, err error) step {
	r.setErr(err)
	if r.cutSince.IsZero() {
		r.cutSince = time.Now()
		r.config.Log.Warn("the list of instances cannot be watched, trying again", "app", r.config.App, "err", err, "index", r.index)
	}
	if !wait.For(ctx, r.failurePause()) {
		return nil
	}
	if lately := r.config.Interval; time.Since(r.cutSince) >= lately && time.Since(r.fullFetchedAt) >= lately {
		return r.fetchFull // better than nothing while no server can be watched
	}
	if candidates, err := r.config.Cluster.ToWatch(ctx, r.failures); err == nil {
		r.server = candidates[0]
	}
	return r.watch
}

// fallBack continues with fetches if a server does not offer a watch, or none from the index, or streams something
// unreadable.
func (r *refresher) fallBack(ctx context.Context, err error) step {
	if r.server.URL != r.listedBy {
		return after(ctx, r.failurePause(), r.fetchFull) // it may have a list all the same
	}
	if r.unwatchable != r.listedBy {
		r.config.Log.Info("the server cannot be watched, its list is fetched", "app", r.config.App, "server", r.listedBy, "err", err)
	}
	r.watched, r.cutSince, r.unwatchable = false, time.Time{}, r.listedBy
	return r.poll(ctx)
}
