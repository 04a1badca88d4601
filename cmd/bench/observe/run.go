package observe

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// New prepares an observation. It asks no node yet.
func New(c Config) *Observer { return newObserver(c, newHTTP()) }

func newObserver(c Config, h *http.Client) *Observer {
	c.Every = cmp.Or(c.Every, 100*time.Millisecond)
	if c.Column.System == scenario.Eureka {
		c.Every = max(c.Every, cachedLook)
	}
	o := &Observer{
		config: c, http: h, lists: make([]lastList, len(c.Nodes)), dropped: make([]bool, len(c.Nodes)), watched: make([]time.Duration, len(c.Nodes)), statuses: make([]client.Status, len(c.Nodes)),
	}
	o.sightings = newSightings(o)
	return o
}

// Run observes until ctx ends. Nodes that do not respond are asked again; that is not an error.
func (o *Observer) Run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { o.machine(ctx) })
	for node := range o.config.Nodes {
		parts.Go(func() { o.usage(ctx, node) })
	}
	if o.config.Quiet == 0 || wire.Pause(ctx, time.Until(o.config.Began.Add(o.config.Quiet))) {
		for node := range o.config.Nodes {
			for _, part := range []func(context.Context, int){o.follow, o.watch, o.leaders} {
				parts.Go(func() { part(ctx, node) })
			}
		}
		parts.Go(func() { o.sightings.run(ctx) })
	}
	parts.Wait()
	o.http.CloseIdleConnections()
}

// Healed reports whether every node's last list, requested after the book's last Mark, lacks nothing that was
// acknowledged before that mark.
func (o *Observer) Healed() bool {
	marked := o.config.Book.Marked()
	o.mu.Lock()
	defer o.mu.Unlock()
	for node, l := range o.lists {
		if !o.dropped[node] && (l.asked.IsZero() || l.asked.Before(marked) || l.Failed || l.Unhealed > 0) {
			return false
		}
	}
	return true
}

// Sighted reports whether every search for a registration has ended.
func (o *Observer) Sighted() bool { return o.sightings.count.Load() == 0 }

// Into adds the observations to a trial, in the order of their times. Call it after Run has returned.
func (o *Observer) Into(t *trial.Trial) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.seen
	t.Lists = append(t.Lists, sorted(s.Lists, func(l trial.List) place { return place{l.Asked, l.Node, ""} })...)
	t.Sightings = append(t.Sightings, sorted(s.Sightings, func(s trial.Sighting) place { return place{s.Acked, s.To, string(s.Way)} })...)
	t.Departures = append(t.Departures, slices.DeleteFunc(o.config.Book.Departures(o.config.Began), func(d trial.Departure) bool {
		return d.Gone < 0 && o.dropped[d.Node] // otherwise it might have stopped listing the instance
	})...)
	t.Evictions = append(t.Evictions, sorted(s.Evictions, func(e trial.Eviction) place { return place{e.At, e.Node, e.ID} })...)
	t.Leaders = append(t.Leaders, sorted(s.Leaders, func(l trial.Leader) place { return place{l.At, l.Node, ""} })...)
	t.Machine = append(t.Machine, s.Machine...)
	t.Usage = append(t.Usage, sorted(s.Usage, func(u trial.Usage) place { return place{u.At, u.Node, ""} })...)
}

// place is an observation's position among its kind.
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
