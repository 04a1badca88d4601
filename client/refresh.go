package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// refresher refreshes a Discovery's list. It belongs to one goroutine, which owns the list and the guard.
type refresher struct {
	*Discovery
	guard guarded
	file  *saver // may be nil
	edit  *edit  // changes from the stream that are not published yet; may be nil

	// URL of the server whose response, full or delta, the list came from; "" before the first
	listedBy    string
	index       string            // the list has everything up to it; "" if not known, so it cannot be watched
	watched     bool              // the list is watched, or will be as soon as a server can be
	server      *transport.Server // the one that is watched, or will be
	stream      *changeStream
	unwatchable string // URL of the server last found to offer no watch; may be ""

	fullFetchedAt time.Time   // when the newest full fetch started, whatever its outcome
	failures      int         // in a row
	wasReset      bool        // the last stream ended so, and no later one has lasted
	outage        wait.Outage // of fetches
	cutSince      time.Time   // since when no server could be watched; zero if one can
	suspect       bool        // the last full response was not believed
}

func newRefresher(d *Discovery) *refresher {
	r := &refresher{Discovery: d, guard: guarded{guard: d.config.Guard}, outage: wait.Outage{Log: d.client.log}}
	r.stream = &changeStream{cluster: d.client.cluster, app: d.app, each: r.apply, idle: r.confirm}
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
	r.listedBy, r.index, r.server = resp.Server, resp.Header.Get(indexHeader), r.client.cluster.ServerOf(resp)
	r.watched = r.config.Mode == RefreshAuto && r.index != "" && r.server != nil
	r.reportGuard(suspect, len(instances), next.Len())
	r.publish(next)
	r.recordSource(SourceFetch, resp.Server, resp.Sent)
}

// poll waits for the time of the next fetch. That fetch is a delta if possible: not while instances are held, and not
// for one application, for which servers have no deltas.
func (r *refresher) poll(ctx context.Context) step {
	next := r.fetchDelta
	if r.config.Mode == RefreshFull || r.app != "" || r.guard.held() > 0 {
		next = r.fetchFull
	}
	return after(ctx, r.config.Interval, next)
}

// publish makes a list the current one.
func (r *refresher) publish(next *Snapshot) {
	changed := r.list.Swap(next) != next
	r.mu.Lock()
	defer r.mu.Unlock()
	if changed {
		r.wakeSubscribers()
	}
	r.status.Index, r.status.Held = r.index, r.guard.held()
}

// recordSource records where the published list came from and when it was up to date, and has it saved. The first
// call ends Discovery.Ready.
func (r *refresher) recordSource(source, server string, asOf time.Time) {
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
		"the list of instances is fetched again", "app", r.app, "server", r.listedBy)
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
		r.client.metrics.guarded.Inc()
	}
	switch {
	case suspect && !r.suspect:
		r.client.log.Warn("a full answer lacks too many instances, they are kept for now", "app", r.app, "server", r.listedBy, "answered", responded, "listed", listed)
	case !suspect && r.suspect:
		r.client.log.Info("full answers are believed again", "app", r.app, "server", r.listedBy, "listed", listed)
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
	r.client.metrics.refreshes.WithLabelValues(kind, outcome).Inc()
}

// indexHeader is the header of a Rollcall server's response with the index of the registry that it shows; stock
// Eureka does not send it. A watch from that index misses nothing, however old the response is.
const indexHeader = "X-Rollcall-Index"

// fetch fetches the instances of all applications, or of DiscoveryConfig.App.
func (r *refresher) fetch(ctx context.Context) (resp transport.Response, instances []*registry.Instance, err error) {
	var leases []*registry.Lease
	if r.app != "" {
		resp, leases, err = fetchApp(ctx, r.client.cluster, r.app)
	} else {
		resp, leases, err = fetchAll(ctx, r.client.cluster)
	}
	instances = make([]*registry.Instance, len(leases))
	for i, l := range leases {
		instances[i] = l.Instance
	}
	return resp, instances, err
}

var (
	// errMismatch means that the list, after a delta, differs from the server's.
	errMismatch = errors.New("the list does not have the delta's hash")
	// errNoDelta means that the server returned no delta that could be applied.
	errNoDelta = errors.New("no delta")
)

// fetchDelta fetches the delta and applies it. If the list then differs from the server's, or deltas are unavailable,
// it fetches everything at once. Source: com.netflix.discovery.DiscoveryClient.getAndUpdateDelta,
// reconcileAndLogDifference.
func (r *refresher) fetchDelta(ctx context.Context) step {
	resp, document, err := r.getDelta(ctx)
	if err == nil {
		err = r.applyDelta(resp, document)
	}
	if ctx.Err() != nil {
		return nil
	}
	r.count("delta", err)
	switch {
	case errors.Is(err, errMismatch), errors.Is(err, errNoDelta):
		return r.fetchFull
	case err != nil:
		r.report(err)
		return after(ctx, r.failurePause(), r.fetchDelta)
	}
	r.report(nil)
	if r.config.Mode == RefreshAuto && resp.Header.Get(indexHeader) != "" && resp.Server != r.unwatchable {
		return r.fetchFull // a Rollcall server not known to refuse watches: fetchFull finds out
	}
	return r.poll(ctx)
}

// getDelta fetches the document of the delta. It returns errNoDelta if the server offers none: upstream responds with
// 403 where deltas are disabled.
func (r *refresher) getDelta(ctx context.Context) (transport.Response, *eureka.Applications, error) {
	resp, err := r.client.cluster.Perform(ctx, r.client.cluster.Reading(transport.Eureka(http.MethodGet, "apps", "delta")), "fetch the delta")
	if resp.Status == http.StatusForbidden || resp.Status == http.StatusNotFound {
		return resp, nil, fmt.Errorf("%w: %w", errNoDelta, resp.Refusal())
	}
	if err != nil {
		return resp, nil, err
	}
	document, err := eureka.DecodeApplications(resp.Body)
	if err != nil {
		return resp, nil, fmt.Errorf("%w: delta as %s shows it: %w", errNoDelta, resp.Server, err)
	}
	if document.Version == "" {
		return resp, nil, fmt.Errorf("%w: that of %s has no version", errNoDelta, resp.Server)
	}
	return resp, document, nil
}

// applyDelta applies a delta to the list, and publishes the list. If the hash does not match then (errMismatch), the
// delta lacks changes; those that it has are applied all the same.
func (r *refresher) applyDelta(resp transport.Response, document *eureka.Applications) error {
	next := withDelta(r.list.Load(), document.Leases, r.guard.release)
	hash := next.HashCode()
	fits := hash == document.HashCode
	if r.index = ""; fits {
		r.index = resp.Header.Get(indexHeader)
	}
	r.publish(next)
	if !fits {
		return fmt.Errorf("%w: it is %q, that of %s %q", errMismatch, hash, resp.Server, document.HashCode)
	}
	r.listedBy = resp.Server
	r.recordSource(SourceFetch, resp.Server, resp.Sent)
	return nil
}

// withDelta returns the list after the changes of a delta, and calls changed with the key of each. A change that was
// applied before changes nothing: servers repeat each for three minutes.
func withDelta(list *Snapshot, changes []*registry.Lease, changed func(registry.Key)) *Snapshot {
	edit := list.edit()
	for _, l := range changes {
		key := l.Instance.Key()
		switch l.Action {
		case registry.ActionAdded, registry.ActionModified:
			edit.set(l.Instance)
		case registry.ActionDeleted:
			edit.remove(key)
		default:
			continue // an unknown action; the hash shows whether the list lacks a change
		}
		changed(key)
	}
	return edit.list()
}

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
		r.failures, r.wasReset = 0, false
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
	r.stream.index = r.index
	err := r.stream.follow(ctx, r.server)
	r.flush()
	return err
}

// apply applies an event. Changes are published once everything that arrived was applied.
func (r *refresher) apply(e WatchEvent) error {
	switch e := e.(type) {
	case WatchStart: // at once the server streams what happened since the index
		r.count("watch", nil)
		r.recordSource(SourceWatch, r.server.URL, time.Now())
		r.setErr(nil)
		if !r.cutSince.IsZero() {
			r.client.log.Info("the list of instances is watched again", "app", r.app, "server", r.server.URL, "index", r.index)
		}
		r.cutSince, r.unwatchable = time.Time{}, ""
	case WatchReset:
		return errReset
	case WatchChange:
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
	if r.status.Source == SourceWatch {
		r.asOf = time.Now()
	}
}

// flush publishes the changes of the stream.
func (r *refresher) flush() {
	if r.edit == nil && r.stream.index == r.index {
		return
	}
	next := r.list.Load()
	if r.edit != nil {
		next = r.edit.list()
	}
	r.edit, r.index = nil, r.stream.index
	r.publish(next)
	r.save()
}

// reset fetches everything, because the list's index has been lost. A server that says so again and again is asked
// once per interval, like one that cannot be watched.
func (r *refresher) reset(ctx context.Context) step {
	r.index = ""
	r.setErr(errReset)
	pause := wait.Retry(0)
	if r.wasReset {
		pause = wait.BackOff(r.config.Interval, 0)
	}
	r.wasReset = true
	return after(ctx, pause, r.fetchFull)
}

// failOver continues at another server when a stream was cut off, or could not be opened.
func (r *refresher) failOver(ctx context.Context, err error) step {
	r.setErr(err)
	if r.cutSince.IsZero() {
		r.cutSince = time.Now()
		r.client.log.Warn("the list of instances cannot be watched, trying again", "app", r.app, "err", err, "index", r.index)
	}
	if !wait.For(ctx, r.failurePause()) {
		return nil
	}
	if lately := r.config.Interval; time.Since(r.cutSince) >= lately && time.Since(r.fullFetchedAt) >= lately {
		return r.fetchFull // better than nothing while no server can be watched
	}
	if candidates, err := r.client.cluster.ToWatch(ctx, r.failures); err == nil {
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
		r.client.log.Info("the server cannot be watched, its list is fetched", "app", r.app, "server", r.listedBy, "err", err)
	}
	r.watched, r.cutSince, r.unwatchable = false, time.Time{}, r.listedBy
	return r.poll(ctx)
}
