// Package observe looks at a cluster during a trial as clients and operators do, and notes what it sees: lists,
// sightings, leaders, evictions, the replicator's figures. Nothing that it meets is an error: a node that gives no
// answer is an observation, too.
package observe

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

// Config says whom to observe.
type Config struct {
	Nodes     []string // HTTP addresses, in the order of trial.Trial.Nodes
	Names     []string // the nodes' names, as they call each other
	Mode      scenario.Mode
	Began     time.Time // of the trial
	Book      *truth.Book
	Sightings float64                             // registrations per second whose way is timed
	Every     time.Duration                       // between two lists of a node; 0: 100 ms
	Usage     func(node int) (trial.Usage, error) // CPU, memory, disk and bytes of a node's process, now; asked once a second; nil: never
	Renewals  func() int64                        // heartbeats answered so far; nil: nobody counts them
	Seed      uint64
}

// Observer observes a cluster. Make one with New.
type Observer struct {
	config    Config
	http      *http.Client
	sightings *sightings

	mu    sync.Mutex
	seen  trial.Trial // what Into adds
	lists []lastList  // by node
}

// lastList is the newest list of a node.
type lastList struct {
	asked time.Time // zero: none was
	trial.List
}

// New lays the observation out. Nothing is asked yet.
func New(c Config) *Observer { return newObserver(c, newHTTP()) }

func newObserver(c Config, h *http.Client) *Observer {
	c.Every = cmp.Or(c.Every, 100*time.Millisecond)
	o := &Observer{config: c, http: h, lists: make([]lastList, len(c.Nodes))}
	o.sightings = newSightings(o)
	return o
}

// Run observes until ctx ends. Nodes that do not answer are asked again; none of that is an error.
func (o *Observer) Run(ctx context.Context) {
	var parts sync.WaitGroup
	for node := range o.config.Nodes {
		for _, part := range []func(context.Context, int){o.follow, o.watch, o.leaders, o.replicator, o.usage} {
			parts.Go(func() { part(ctx, node) })
		}
	}
	parts.Go(func() { o.sightings.run(ctx) })
	parts.Wait()
	o.http.CloseIdleConnections()
}

// note adds an observation.
func (o *Observer) note(add func(*trial.Trial)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	add(&o.seen)
}

// at is a moment of the trial.
func (o *Observer) at(t time.Time) trial.Micros { return trial.Since(o.config.Began, t) }

// Healed reports whether every node's last list, asked for after the last Mark of the book, lacks nothing that was
// acknowledged before that mark.
func (o *Observer) Healed() bool {
	marked := o.config.Book.Marked()
	o.mu.Lock()
	defer o.mu.Unlock()
	return !slices.ContainsFunc(o.lists, func(l lastList) bool {
		return l.asked.IsZero() || l.asked.Before(marked) || l.Failed || l.Unhealed > 0
	})
}

// Into adds what was observed to a trial, in the order of its times. Call it after Run has returned.
func (o *Observer) Into(t *trial.Trial) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.seen
	t.Lists = append(t.Lists, sorted(s.Lists, func(l trial.List) place { return place{l.Asked, l.Node, ""} })...)
	t.Sightings = append(t.Sightings, sorted(s.Sightings, func(s trial.Sighting) place { return place{s.Acked, s.To, string(s.Way)} })...)
	t.Departures = append(t.Departures, o.config.Book.Departures(o.config.Began)...)
	t.Evictions = append(t.Evictions, sorted(s.Evictions, func(e trial.Eviction) place { return place{e.At, e.Node, e.ID} })...)
	t.Leaders = append(t.Leaders, sorted(s.Leaders, func(l trial.Leader) place { return place{l.At, l.Node, ""} })...)
	t.Replicator = append(t.Replicator, sorted(s.Replicator, func(r trial.Replication) place { return place{r.At, r.Node, ""} })...)
	t.Usage = append(t.Usage, sorted(s.Usage, func(u trial.Usage) place { return place{u.At, u.Node, ""} })...)
}

// place is where an observation stands among its kind.
type place struct {
	at   trial.Micros
	node int
	text string
}

func sorted[T any](all []T, of func(T) place) []T {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b T) int {
		x, y := of(a), of(b)
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.node, y.node), cmp.Compare(x.text, y.text))
	})
	return all
}
