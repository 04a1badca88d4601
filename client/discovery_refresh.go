package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// refresher is what keeps a Discovery's list up to date. It belongs to one goroutine, which owns the
// list and the guard.
type refresher struct {
	*Discovery
	guard guarded
	file  *listFile     // nil: there is none
	edit  *snapshotEdit // what a stream told and is not published yet; nil: nothing

	listed  string  // URL of the server that everything came from last; "": of none yet
	index   string  // up to where the list has everything; "": not known, so it cannot be watched
	watches bool    // the list is watched, or will be as soon as a server can be
	server  *server // who is watched
	stream  *watchStream
	unable  string // URL of a server that does not offer a watch

	tried    time.Time // when everything was asked for last
	failures int       // in a row
	resets   int       // in a row
	failing  bool      // nothing can be fetched
	cutSince time.Time // nobody could be watched since then; zero: somebody can
	suspect  bool      // the last full answer was not believed
}

func newRefresher(d *Discovery) *refresher {
	r := &refresher{Discovery: d, guard: guarded{guard: d.config.Guard}}
	r.stream = &watchStream{client: d.client, app: d.config.App, each: r.take, idle: r.heard}
	return r
}

// step is one step on the way: it refreshes the list, pauses, and says what is next; nil when ctx has
// ended.
type step func(ctx context.Context) step

// run refreshes the list until ctx ends.
func (r *refresher) run(ctx context.Context) {
	for next := step(r.full); next != nil; {
		next = next(ctx)
	}
}

// after pauses before the next step.
func after(ctx context.Context, pause time.Duration, next step) step {
	if !wait(ctx, pause) {
		return nil
	}
	return next
}

// full fetches everything, and finds out how the list can be kept up to date from there.
func (r *refresher) full(ctx context.Context) step {
	r.tried = time.Now()
	a, instances, err := r.fetch(ctx)
	if ctx.Err() != nil {
		return nil
	}
	r.count("full", err)
	if err != nil {
		r.failed(err)
		next := r.full
		if r.watches && r.index != "" {
			next = r.watch
		}
		return after(ctx, r.pause(), next)
	}
	r.takeFull(a, instances)
	r.succeeded()
	if r.watches {
		return r.watch
	}
	return r.poll(ctx)
}

// takeFull makes a full answer the list, as far as the guard lets it.
func (r *refresher) takeFull(a answer, instances []*registry.Instance) {
	next, suspect := r.guard.full(r.list.Load(), instances, time.Now())
	r.listed, r.index, r.server = a.server, a.header.Get(indexHeader), r.client.serverOf(a)
	r.watches = r.config.Mode == RefreshAuto && r.index != "" && r.server != nil
	r.judged(suspect, len(instances), next.Len())
	r.publish(next)
	r.came(SourceFetch, a.server, a.sent)
}

// poll waits for the time of the next fetch. What is held is asked for with everything, and so is a single
// application, of which there are no deltas.
func (r *refresher) poll(ctx context.Context) step {
	next := r.delta
	if r.config.Mode == RefreshFull || r.config.App != "" || r.guard.held() > 0 {
		next = r.full
	}
	return after(ctx, r.config.Interval, next)
}

// publish shows a list.
func (r *refresher) publish(next *Snapshot) {
	changed := r.list.Swap(next) != next
	r.mu.Lock()
	r.status.Index, r.status.Held = r.index, r.guard.held()
	r.mu.Unlock()
	if changed {
		r.tell()
	}
}

// came notes where the published list is from, and when it was up to date.
func (r *refresher) came(source, server string, asOf time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.asOf.IsZero()
	r.status.Source, r.status.Server, r.asOf = source, server, asOf
	if first {
		close(r.ready)
	}
	r.toSave()
}

// toSave says that the list may be another than that in the file.
func (r *refresher) toSave() {
	if r.file != nil {
		r.file.changed()
	}
}

// pause is how long to wait after a failure.
func (r *refresher) pause() time.Duration {
	r.failures++
	if r.listed == "" || r.watches {
		return retryPause(r.failures - 1)
	}
	return backOff(r.config.Interval, r.failures)
}

// backOff is the pause after so many failures in a row: twice as long at most after each, and half of that
// at least.
func backOff(interval time.Duration, failures int) time.Duration {
	longest := min(interval<<min(failures, 4), 10*interval)
	return longest/2 + rand.N(longest/2+1)
}

// succeeded notes that a fetch did.
func (r *refresher) succeeded() {
	r.failures = 0
	r.setErr(nil)
	if r.failing {
		r.client.log.Info("the list of instances is fetched again", "app", r.config.App, "server", r.listed)
	}
	r.failing = false
}

// failed notes that a fetch did.
func (r *refresher) failed(err error) {
	r.setErr(err)
	if !r.failing {
		r.client.log.Warn("the list of instances cannot be fetched, it stays as it is", "app", r.config.App, "err", err)
	}
	r.failing = true
}

func (r *refresher) setErr(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Err = err
}

// judged counts the full answers that the guard does not believe, and logs the first and the end of them.
func (r *refresher) judged(suspect bool, answered, listed int) {
	if suspect {
		r.client.metrics.guarded.Inc()
	}
	switch {
	case suspect && !r.suspect:
		r.client.log.Warn("a full answer lacks too many instances, they are kept for now", "app", r.config.App, "server", r.listed, "answered", answered, "listed", listed)
	case !suspect && r.suspect:
		r.client.log.Info("full answers are believed again", "app", r.config.App, "server", r.listed, "listed", listed)
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
	r.client.metrics.refreshes.WithLabelValues(kind, outcome).Inc()
}
