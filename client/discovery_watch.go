package client

import (
	"context"
	"errors"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

var (
	// errReset: the server does not know what happened after the index; its whole list is needed.
	errReset = errors.New("changes may have been missed")
	// errHeld: it is time to ask again for what the guard holds.
	errHeld = errors.New("instances are held")
)

// watch follows a server from the list's index on for as long as it can be followed. Another server goes
// on from there if it is of the same history, so that no full answer is needed.
func (r *refresher) watch(ctx context.Context) step {
	start := time.Now()
	err := r.follow(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if time.Since(start) > longestRetry {
		r.failures, r.resets = 0, 0
	}
	switch {
	case errors.Is(err, errHeld):
		return r.full
	case errors.Is(err, errReset):
		return r.reset(ctx)
	}
	r.count("watch", err)
	if errors.Is(err, ErrNeedsRollcall) || errors.As(err, new(finalError)) {
		return r.refused(ctx, err)
	}
	return r.cut(ctx, err)
}

// follow reads the stream of one server until it ends, which is always an error. While something is held
// that is at the latest after an Interval: an answer beside the stream might be older than the stream.
func (r *refresher) follow(ctx context.Context) error {
	if r.guard.held() > 0 {
		bounded, cancel := context.WithTimeoutCause(ctx, r.config.Interval, errHeld)
		defer cancel()
		ctx = bounded
	}
	r.stream.index = r.index
	err := r.stream.follow(ctx, r.server)
	r.flush()
	return err
}

// take applies an event. What changed is published when all that came was applied.
func (r *refresher) take(e WatchEvent) error {
	switch e := e.(type) {
	case WatchStart:
		r.began()
	case WatchReset:
		return errReset
	case WatchChange:
		r.change(e)
	}
	return nil
}

// change applies a change. Without its document an instance is gone: only the record of its removal is
// left.
func (r *refresher) change(c WatchChange) {
	if r.edit == nil {
		r.edit = r.list.Load().edit()
	}
	r.guard.told(c.Key())
	if c.Instance == nil || c.Action == registry.ActionDeleted.String() {
		r.edit.remove(c.Key())
		return
	}
	r.edit.put(c.Instance.Instance)
}

// began notes that a server took the watch up. It tells at once of what happened since the index.
func (r *refresher) began() {
	r.count("watch", nil)
	r.came(SourceWatch, r.server.url, time.Now())
	r.setErr(nil)
	if !r.cutSince.IsZero() {
		r.client.log.Info("the list of instances is watched again", "app", r.config.App, "server", r.server.url, "index", r.index)
	}
	r.cutSince, r.unable = time.Time{}, ""
}

// heard is called when all that came from the server was applied, were it only a mark.
func (r *refresher) heard() {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.Source == SourceWatch {
		r.asOf = time.Now()
	}
}

// flush publishes what the stream told.
func (r *refresher) flush() {
	if r.edit == nil && r.stream.index == r.index {
		return
	}
	next := r.list.Load()
	if r.edit != nil {
		next = r.edit.snapshot()
	}
	r.edit, r.index = nil, r.stream.index
	r.publish(next)
	r.toSave()
}

// reset fetches everything, because the list's index leads nowhere any more. A server that says so of its
// own lists must not be asked for one after the other.
func (r *refresher) reset(ctx context.Context) step {
	r.index = ""
	r.resets++
	if r.resets == 1 {
		return after(ctx, retryPause(0), r.full)
	}
	return after(ctx, backOff(r.config.Interval, r.resets-1), r.full)
}

// cut goes on at another server when a stream was cut off, or could not be had.
func (r *refresher) cut(ctx context.Context, err error) step {
	r.setErr(err)
	if r.cutSince.IsZero() {
		r.cutSince = time.Now()
		r.client.log.Warn("the list of instances cannot be watched, trying again", "app", r.config.App, "err", err, "index", r.index)
	}
	if !wait(ctx, r.pause()) {
		return nil
	}
	if lately := r.config.Interval; time.Since(r.cutSince) >= lately && time.Since(r.tried) >= lately {
		return r.full // better than nothing, where nobody can be watched
	}
	if candidates, err := r.client.toWatch(ctx, r.failures); err == nil {
		r.server = candidates[0]
	}
	return r.watch
}

// refused goes on where a server does not offer a watch, or none from the index, or tells what cannot be
// read.
func (r *refresher) refused(ctx context.Context, err error) step {
	if r.server.url != r.listed {
		return after(ctx, r.pause(), r.full) // it may have a list all the same
	}
	if r.unable != r.listed {
		r.client.log.Info("the server cannot be watched, its list is fetched", "app", r.config.App, "server", r.listed, "err", err)
	}
	r.watches, r.cutSince, r.unable = false, time.Time{}, r.listed
	return r.poll(ctx)
}
