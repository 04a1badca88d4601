package list

import (
	"context"
	"errors"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/client/internal/wait"
	"github.com/seed-20419f34/rollcall/client/internal/watch"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// refresher refreshes a Keeper's list. It belongs to one goroutine, which owns the list and the guard.
type refresher struct {
	*Keeper
	guard guarded
	file  *saver // nil: there is none
	edit  *edit  // changes of the stream that are not published yet; nil: there are none

	listed  string            // URL of the server that everything came from last; "": of none yet
	index   string            // up to where the list has everything; "": not known, so it cannot be watched
	watched bool              // the list is watched, or will be as soon as a server can be
	server  *transport.Server // the one that is watched, or will be
	stream  *watch.Stream
	unable  string // URL of a server that does not offer a watch

	tried    time.Time // when everything was asked for last
	failures int       // in a row
	resets   int       // in a row
	failing  bool      // nothing can be fetched
	cutSince time.Time // since when no server could be watched; zero: one can
	suspect  bool      // the last full response was not believed
}

func newRefresher(k *Keeper) *refresher {
	r := &refresher{Keeper: k, guard: guarded{guard: k.config.Guard}}
	r.stream = &watch.Stream{Cluster: k.config.Cluster, App: k.config.App, Each: r.apply, Idle: r.confirm}
	return r
}

// step refreshes the list, pauses, and returns the next step; nil when ctx has ended.
type step func(ctx context.Context) step

// run refreshes the list until ctx ends.
func (r *refresher) run(ctx context.Context) {
	for next := step(r.fetchFull); next != nil; {
		next = next(ctx)
	}
}

// after pauses before the next step.
func after(ctx context.Context, pause time.Duration, next step) step {
	if !wait.For(ctx, pause) {
		return nil
	}
	return next
}

// fetchFull fetches everything, and finds out how the list can be kept up to date from there.
func (r *refresher) fetchFull(ctx context.Context) step {
	r.tried = time.Now()
	a, instances, err := r.fetch(ctx)
	if ctx.Err() != nil {
		return nil
	}
	r.count("full", err)
	if err != nil {
		r.failed(err)
		next := r.fetchFull
		if r.watched && r.index != "" {
			next = r.watch
		}
		return after(ctx, r.pause(), next)
	}
	r.replace(a, instances)
	r.succeeded()
	if r.watched {
		return r.watch
	}
	return r.poll(ctx)
}

// replace makes a full response the list, as far as the guard lets it.
func (r *refresher) replace(a transport.Response, instances []*registry.Instance) {
	next, suspect := r.guard.full(r.list.Load(), instances, time.Now())
	r.listed, r.index, r.server = a.Server, a.Header.Get(indexHeader), r.config.Cluster.ServerOf(a)
	r.watched = r.config.Watch && r.index != "" && r.server != nil
	r.reportGuard(suspect, len(instances), next.Len())
	r.publish(next)
	r.date(Fetch, a.Server, a.Sent)
}

// poll waits for the time of the next fetch. While instances are held everything is fetched, and so is a single
// application, of which there are no deltas.
func (r *refresher) poll(ctx context.Context) step {
	next := r.fetchDelta
	if !r.config.Deltas || r.config.App != "" || r.guard.held() > 0 {
		next = r.fetchFull
	}
	return after(ctx, r.config.Interval, next)
}

// publish makes a list the present one.
func (r *refresher) publish(next *List) {
	changed := r.list.Swap(next) != next
	r.mu.Lock()
	defer r.mu.Unlock()
	if changed {
		r.config.Publish(next)
	}
	r.status.Index, r.status.Held = r.index, r.guard.held()
}

// date sets where the published list is from, and when it was up to date.
func (r *refresher) date(source Source, server string, asOf time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.asOf.IsZero()
	r.status.Source, r.status.Server, r.asOf = source, server, asOf
	if first {
		close(r.ready)
	}
	r.save()
}

// save has the list saved if it differs from the file's.
func (r *refresher) save() {
	if r.file != nil {
		r.file.request()
	}
}

// pause is how long to wait after a failure.
func (r *refresher) pause() time.Duration {
	r.failures++
	if r.listed == "" || r.watched {
		return wait.Retry(r.failures - 1)
	}
	return wait.BackOff(r.config.Interval, r.failures)
}

// succeeded ends the failures of fetches.
func (r *refresher) succeeded() {
	r.failures = 0
	r.setErr(nil)
	if r.failing {
		r.config.Log.Info("the list of instances is fetched again", "app", r.config.App, "server", r.listed)
	}
	r.failing = false
}

// failed is called when a fetch did.
func (r *refresher) failed(err error) {
	r.setErr(err)
	if !r.failing {
		r.config.Log.Warn("the list of instances cannot be fetched, it stays as it is", "app", r.config.App, "err", err)
	}
	r.failing = true
}

func (r *refresher) setErr(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Err = err
}

// reportGuard counts the full responses that the guard does not believe, and logs the first and the end of them.
func (r *refresher) reportGuard(suspect bool, responded, listed int) {
	if suspect {
		r.config.Metrics.Guarded.Inc()
	}
	switch {
	case suspect && !r.suspect:
		r.config.Log.Warn("a full answer lacks too many instances, they are kept for now", "app", r.config.App, "server", r.listed, "answered", responded, "listed", listed)
	case !suspect && r.suspect:
		r.config.Log.Info("full answers are believed again", "app", r.config.App, "server", r.listed, "listed", listed)
	}
	r.suspect = suspect
}

// count counts a refresh.
func (r *refresher) count(kind string, err error) {
	outcome := "ok"
	switch {
	case errors.Is(err, errMismatch):
		outcome = "mismatch"
	case err != nil:
		outcome = "failed"
	}
	r.config.Metrics.Refreshes.WithLabelValues(kind, outcome).Inc()
}
