package list

import (
	"context"
	"errors"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// refresher refreshes a Keeper's list. It belongs to one goroutine, which owns the list and the guard.
type refresher struct {
	*Keeper
	guard guarded
	file  *saver // may be nil
	edit  *edit  // changes from the stream that are not published yet; may be nil

	// URL of the server whose response, full or delta, the list came from; "" before the first
	listedBy    string
	index       string            // the list has everything up to it; "" if not known, so it cannot be watched
	watched     bool              // the list is watched, or will be as soon as a server can be
	server      *transport.Server // the one that is watched, or will be
	stream      *stream
	unwatchable string // URL of the server last found to offer no watch; may be ""

	fullFetchedAt time.Time   // when the newest full fetch started, whatever its outcome
	failures      int         // in a row
	resets        int         // in a row
	outage        wait.Outage // of fetches
	cutSince      time.Time   // since when no server could be watched; zero if one can
	suspect       bool        // the last full response was not believed
}

func newRefresher(k *Keeper) *refresher {
	r := &refresher{Keeper: k, guard: guarded{guard: k.config.Guard}, outage: wait.Outage{Log: k.config.Log}}
	r.stream = &stream{Cluster: k.config.Cluster, App: k.config.App, Each: r.apply, Idle: r.confirm}
	return r
}

// step refreshes the list, pauses, and returns the next step, or nil when ctx has ended.
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
	r.fullFetchedAt = time.Now()
	resp, instances, err := r.fetch(ctx)
	if ctx.Err() != nil {
		return nil
	}
	r.count("full", err)
	if err != nil {
		r.report(err)
		next := r.fetchFull
		if r.watched && r.index != "" {
			next = r.watch
		}
		return after(ctx, r.failurePause(), next)
	}
	r.replace(resp, instances)
	r.report(nil)
	if r.watched {
		return r.watch
	}
	return r.poll(ctx)
}

// replace makes the instances of a full response the list, plus those that the guard holds.
func (r *refresher) replace(resp transport.Response, instances []*registry.Instance) {
	next, suspect := r.guard.full(r.list.Load(), instances, time.Now())
	r.listedBy, r.index, r.server = resp.Server, resp.Header.Get(indexHeader), r.config.Cluster.ServerOf(resp)
	r.watched = r.config.Watch && r.index != "" && r.server != nil
	r.reportGuard(suspect, len(instances), next.Len())
	r.publish(next)
	r.recordSource(Fetch, resp.Server, resp.Sent)
}

// poll waits for the time of the next fetch. That fetch is a delta if possible: not while instances are held, and not
// for one application, for which servers have no deltas.
func (r *refresher) poll(ctx context.Context) step {
	next := r.fetchDelta
	if !r.config.Deltas || r.config.App != "" || r.guard.held() > 0 {
		next = r.fetchFull
	}
	return after(ctx, r.config.Interval, next)
}

// publish makes a list the current one.
func (r *refresher) publish(next *List) {
	changed := r.list.Swap(next) != next
	r.mu.Lock()
	defer r.mu.Unlock()
	if changed {
		r.config.Publish(next)
	}
	r.status.Index, r.status.Held = r.index, r.guard.held()
}

// recordSource records where the published list came from and when it was up to date, and has it saved. The first
// call closes Keeper.Ready.
func (r *refresher) recordSource(source Source, server string, asOf time.Time) {
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

// failurePause counts a failure, and returns how long to wait after it.
func (r *refresher) failurePause() time.Duration {
	r.failures++
	if r.listedBy == "" || r.watched {
		return wait.Retry(r.failures - 1)
	}
	return wait.BackOff(r.config.Interval, r.failures)
}

// report shows the outcome of a fetch in the status, and logs the first failure of a row and its end.
func (r *refresher) report(err error) {
	if err == nil {
		r.failures = 0
	}
	r.setErr(err)
	r.outage.Report(err, "the list of instances cannot be fetched, it stays as it is",
		"the list of instances is fetched again", "app", r.config.App, "server", r.listedBy)
}

func (r *refresher) setErr(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Err = err
}

// reportGuard counts the full responses that the guard does not believe, and logs the first one and the end of the
// row.
func (r *refresher) reportGuard(suspect bool, responded, listed int) {
	if suspect {
		r.config.Metrics.Guarded.Inc()
	}
	switch {
	case suspect && !r.suspect:
		r.config.Log.Warn("a full answer lacks too many instances, they are kept for now", "app", r.config.App, "server", r.listedBy, "answered", responded, "listed", listed)
	case !suspect && r.suspect:
		r.config.Log.Info("full answers are believed again", "app", r.config.App, "server", r.listedBy, "listed", listed)
	}
	r.suspect = suspect
}

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
