package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// Pauses between two looks for one registration.
const (
	shortestLook = 4 * time.Millisecond
	// lookShare makes the pause grow with the time that the registration has been looked for: its delay is known to so
	// much of itself, and what nobody will see for seconds is not asked for hundreds of times.
	lookShare = 6
	// lookLoad is the most of its time that a lookout spends with the reading of documents.
	lookLoad = 5
)

// glance is a way of looking.
type glance struct {
	way  trial.Way
	path func(id string) string
	// together: the document shows all registrations that are looked for.
	together bool
}

var (
	byRead      = glance{way: trial.ByRead, path: instancePath}
	byStaleRead = glance{way: trial.ByStale, path: stalePath}
	byList      = glance{way: trial.ByList, path: func(string) string { return registryPath + "/" + sightApp }, together: true}
	byDelta     = glance{way: trial.ByDelta, path: func(string) string { return registryPath + "/delta" }, together: true}
)

func instancePath(id string) string { return registryPath + "/" + sightApp + "/" + id }

func stalePath(id string) string { return instancePath(id) + "?consistency=stale" }

// lookout looks for registrations at one node in one way, one look at a time.
type lookout struct {
	observer *Observer
	node     int
	glance   glance
	asker    *asker
	arrived  chan struct{} // something was taken since

	mu      sync.Mutex
	waiting []*search
}

// search is a registration that this lookout has not seen yet.
type search struct {
	*sighting
	due      time.Time // of the next look
	finished bool      // nobody looks any more
}

func newLookout(o *Observer, node int, g glance) *lookout {
	return &lookout{observer: o, node: node, glance: g, asker: o.asker(node), arrived: make(chan struct{}, 1)}
}

// add begins to look for a registration that was acknowledged just now.
func (l *lookout) add(g *sighting) {
	l.mu.Lock()
	l.waiting = append(l.waiting, &search{sighting: g, due: g.acked})
	l.mu.Unlock()
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}

// run looks until ctx ends.
func (l *lookout) run(ctx context.Context) {
	defer l.giveUp()
	for ctx.Err() == nil {
		batch, pause := l.batch(time.Now())
		if len(batch) > 0 {
			l.askAll(ctx, batch)
			continue
		}
		l.idle(ctx, pause)
	}
}

// batch is what is to be looked for now, or else how long the pause until then is; -1: until something arrives.
func (l *lookout) batch(now time.Time) (batch []*search, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(w *search) bool { return w.finished })
	pause = -1
	for _, w := range l.waiting {
		left := w.due.Sub(now)
		if left <= 0 {
			batch = append(batch, w)
		} else if pause < 0 || left < pause {
			pause = left
		}
	}
	if len(batch) > 0 && l.glance.together {
		batch = slices.Clone(l.waiting)
	}
	return batch, pause
}

func (l *lookout) idle(ctx context.Context, pause time.Duration) {
	var due <-chan time.Time
	if pause >= 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
	case <-l.arrived:
	case <-due:
	}
}

// askAll looks for a batch: with one question for all, or with one for each.
func (l *lookout) askAll(ctx context.Context, batch []*search) {
	if l.glance.together {
		l.ask(ctx, batch)
		return
	}
	for i := range batch {
		l.ask(ctx, batch[i:i+1])
	}
}

// ask puts one question. What a look saw was there when the answer was made; the moment of the question counts, for an
// answer that takes its time to be right is late, but not stale.
func (l *lookout) ask(ctx context.Context, batch []*search) {
	begun := time.Now()
	resp, err := l.asker.find(ctx, l.glance.path(batch[0].id))
	if ctx.Err() != nil {
		return
	}
	now, least := time.Now(), shortestLook
	if err == nil {
		least = max(least, (lookLoad-1)*now.Sub(resp.firstByte))
	}
	for _, w := range batch {
		if err == nil && shows(resp.body, w.id) {
			l.observer.sighted(w.sighting, l.node, l.glance.way, begun)
			w.finish()
			continue
		}
		l.again(w, now, least)
	}
}

// shows reports whether a document is about the instance. Ids are unique, so a quoted one stands for nothing else.
func shows(document []byte, id string) bool { return bytes.Contains(document, []byte(`"`+id+`"`)) }

// again makes the next look due, unless there were enough.
func (l *lookout) again(w *search, now time.Time, least time.Duration) {
	age := now.Sub(w.acked)
	if age > sightLimit {
		l.observer.unseen(w.sighting, l.node, l.glance.way)
		w.finish()
		return
	}
	w.due = now.Add(max(least, age/lookShare))
}

// finish ends the search of one lookout.
func (w *search) finish() {
	w.finished = true
	if w.searches.Add(-1) == 0 {
		close(w.done)
	}
}

// giveUp ends the search for everything.
func (l *lookout) giveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiting {
		if !w.finished {
			l.observer.unseen(w.sighting, l.node, l.glance.way)
		}
	}
}

const (
	// endLimit is for how long nodes are asked again that do not answer, or that differ.
	endLimit = 5 * time.Second
	endEvery = 100 * time.Millisecond
)

// End asks every node what it holds itself (?consistency=stale): the registry's list, by the book, and the versions of
// the watched keys. It asks again for up to 5 s while a node gives no answer, lacks something, lists what was
// canceled, or holds another version than the others; the last answers count. Leases must be renewed meanwhile. The
// times of Config.Began and the seed do not matter.
func End(ctx context.Context, c Config, app string, keys []string, lease time.Duration) []trial.Ending {
	e := &ender{observer: New(c), app: app, keys: keys, lease: lease}
	defer e.observer.http.CloseIdleConnections()
	return e.askUntilAgreed(ctx)
}

// askUntilAgreed asks until there is nothing to wait for.
func (e *ender) askUntilAgreed(ctx context.Context) []trial.Ending {
	limit := time.Now().Add(endLimit)
	for {
		endings := e.all(ctx)
		if agreed(endings) || time.Now().After(limit) || !wire.Pause(ctx, endEvery) {
			return endings
		}
	}
}

// agreed reports whether there is nothing to wait for. The dead may stay, as servers protect themselves.
func agreed(endings []trial.Ending) bool {
	return !slices.ContainsFunc(endings, func(e trial.Ending) bool {
		return e.Failed != "" || len(e.Missing) > 0 || len(e.Revived) > 0 || !maps.Equal(e.Keys, endings[0].Keys)
	})
}

// ender asks nodes for their ending.
type ender struct {
	observer *Observer
	app      string
	keys     []string
	lease    time.Duration
}

func (e *ender) all(ctx context.Context) []trial.Ending {
	endings := make([]trial.Ending, len(e.observer.config.Nodes))
	var nodes sync.WaitGroup
	for node := range endings {
		nodes.Go(func() { endings[node] = e.node(ctx, node) })
	}
	nodes.Wait()
	return endings
}

func (e *ender) node(ctx context.Context, node int) trial.Ending {
	asker, reader := e.observer.asker(node), newListReader()
	ending := trial.Ending{Node: node}
	fail := func(err error) trial.Ending {
		return trial.Ending{Node: node, Failed: err.Error()}
	}
	asked := time.Now()
	resp, err := asker.find(ctx, registryPath+"?consistency=stale")
	if err != nil {
		return fail(err)
	}
	listing, err := reader.registry(resp.body)
	if err != nil {
		return fail(fmt.Errorf("list: %w", err))
	}
	ending.Missing, ending.Revived, ending.Dead = e.observer.config.Book.End(listing, asked, e.lease)
	if ending.Keys, err = e.versions(ctx, asker, reader); err != nil {
		return fail(err)
	}
	return ending
}

// versions are those of the watched keys that a node has.
func (e *ender) versions(ctx context.Context, a *asker, reader *listReader) (map[string]int64, error) {
	versions := make(map[string]int64)
	for _, key := range e.keys {
		path := registryPath + "/" + url.PathEscape(e.app) + "/" + url.PathEscape(key) + "?consistency=stale"
		resp, err := a.get(ctx, path)
		switch {
		case err != nil:
			return nil, err
		case resp.status == http.StatusNotFound:
			continue
		case resp.status != http.StatusOK:
			return nil, fmt.Errorf("%s: status %d", key, resp.status)
		}
		held, err := reader.instance(resp.body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		versions[key] = held[key]
	}
	return versions, nil
}

const (
	// retryEvery is the pause before a node that does not answer is asked again for its stream of changes.
	retryEvery = 50 * time.Millisecond
	// streamPatience is longer than a client's longest pause between two tries: after so long a try it begins anew with
	// its shortest.
	streamPatience = 10 * time.Second
)

// watch follows a node's stream of changes, and goes on after every interruption.
func (o *Observer) watch(ctx context.Context, node int) {
	c := newClient(&http.Client{Transport: insistent{o.http.Transport}}, streamPatience, "http://"+o.config.Nodes[node])
	repeat(ctx, retryEvery, func() time.Duration {
		_ = c.Watch(ctx, client.WatchConfig{}, func(e client.WatchEvent) error { // its end is the node's, and it begins anew
			o.changed(node, e, time.Now())
			return nil
		})
		return 0
	})
}

// changed notes what a node's stream told.
func (o *Observer) changed(node int, e client.WatchEvent, at time.Time) {
	switch e := e.(type) {
	case client.WatchStart:
		o.sightings.recordStreamStart(node)
	case client.WatchReset:
		o.sightings.skip(node)
	case client.WatchChange:
		o.sightings.recordWatch(node, e.ID, at)
		if e.Why == "evicted" {
			alive := o.config.Book.Alive(e.ID)
			o.add(func(t *trial.Trial) {
				t.Evictions = append(t.Evictions, trial.Eviction{At: o.at(at), Node: node, ID: e.ID, Alive: alive})
			})
		}
	}
}

// insistent asks again at once where a node does not answer: a client that is kind to servers waits for seconds
// until it sees that one is back.
type insistent struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i insistent) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		resp, err := i.RoundTripper.RoundTrip(req)
		if err == nil && resp.StatusCode < http.StatusInternalServerError {
			return resp, nil
		}
		if err == nil {
			resp.Body.Close()
		}
		if !wire.Pause(req.Context(), retryEvery) {
			return nil, context.Cause(req.Context())
		}
	}
}

// leaderEvery is how often a node is asked who leads.
const leaderEvery = 100 * time.Millisecond

// leaders asks a node who leads, and notes what changes. A node that does not answer knows no leader.
func (o *Observer) leaders(ctx context.Context, node int) {
	if o.config.Mode != scenario.CP {
		return
	}
	asker := o.asker(node)
	var last *trial.Leader
	repeat(ctx, leaderEvery, func() time.Duration {
		l := trial.Leader{At: o.at(time.Now()), Node: node, Leader: -1}
		l.Leader, l.Term = o.leader(ctx, asker)
		if ctx.Err() != nil || last != nil && last.Leader == l.Leader && last.Term == l.Term {
			return 0
		}
		last = &l
		o.add(func(t *trial.Trial) { t.Leaders = append(t.Leaders, l) })
		return 0
	})
}

// leader is the number of the leader that a node knows, -1 if it knows none, and its term.
func (o *Observer) leader(ctx context.Context, a *asker) (leader int, term uint64) {
	var status client.Status
	resp, err := a.find(ctx, "/v1/rollcall/status")
	if err != nil || json.Unmarshal(resp.body, &status) != nil {
		return -1, 0
	}
	return slices.Index(o.config.Names, status.Leader), status.Term
}

// replicator notes the figures of a node's replicator every second, if it has one that sends.
func (o *Observer) replicator(ctx context.Context, node int) {
	asker := o.asker(node)
	repeat(ctx, time.Second, func() time.Duration {
		at := time.Now()
		resp, err := asker.find(ctx, "/metrics")
		if err != nil {
			return 0
		}
		if r, sends := replication(resp.body); sends {
			r.At, r.Node = o.at(at), node
			o.add(func(t *trial.Trial) { t.Replicator = append(t.Replicator, r) })
		}
		return 0
	})
}

// replication reads the figures of all peers from a node's metrics; sends is false if there are none.
func replication(metrics []byte) (r trial.Replication, sends bool) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(metrics))
	if err != nil {
		return trial.Replication{}, false
	}
	values := func(name string) []float64 {
		var all []float64
		for _, m := range families["rollcall_replication_"+name].GetMetric() {
			all = append(all, m.GetCounter().GetValue()+m.GetGauge().GetValue()) // it is one of them
		}
		sends = sends || len(all) > 0
		return all
	}
	r = trial.Replication{
		Accepted:   sum(values("accepted_tasks_total")),
		Merged:     sum(values("overridden_tasks_total")),
		Dropped:    sum(values("queue_overflows_total")) + sum(values("expired_tasks_total")) + sum(values("permanent_errors_total")),
		Sent:       sum(values("successful_executions_total")),
		Errors:     sum(values("transient_errors_total")) + sum(values("congestion_issues_total")),
		Batch:      most(values("batch_size")),
		Queued:     sum(values("acceptor_queue_size")) + sum(values("reprocess_queue_size")) + sum(values("queue_size")),
		LagChanges: most(values("lag_changes")),
		LagSeconds: most(values("lag_seconds")),
	}
	return r, sends
}

func sum(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total
}

// most is the greatest of values that are not negative; 0 of none.
func most(values []float64) float64 {
	greatest := 0.0
	for _, v := range values {
		greatest = max(greatest, v)
	}
	return greatest
}
