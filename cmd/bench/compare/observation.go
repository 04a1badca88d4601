package compare

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// newObserver prepares an observation. It asks no node yet.
func newObserver(c observed) *observer {
	c.Every = cmp.Or(c.Every, 100*time.Millisecond)
	if c.caches() {
		c.Every = max(c.Every, cachedLook)
	}
	if c.Transport == nil {
		c.Transport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 32, ReadBufferSize: 64 << 10}
	}
	o := &observer{config: c, http: &http.Client{Transport: c.Transport}, nodes: make([]view, len(c.Nodes))}
	o.sightings = newSightings(o)
	return o
}

// run observes until ctx ends. Nodes that do not respond are asked again; that is not an error.
func (o *observer) run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { o.machine(ctx) })
	for node := range o.nodes {
		parts.Go(func() { o.usage(ctx, node) })
	}
	if o.config.Quiet == 0 || wait.For(ctx, time.Until(o.config.Began.Add(o.config.Quiet))) {
		for node := range o.nodes {
			for _, part := range []func(context.Context, int){o.follow, o.watch, o.leaders} {
				parts.Go(func() { part(ctx, node) })
			}
		}
		parts.Go(func() { o.sightings.run(ctx) })
	}
	parts.Wait()
	o.http.CloseIdleConnections()
}

// healed reports whether every node's last list, requested after the book's last Mark, lacks nothing that was
// acknowledged before that mark.
func (o *observer) healed() bool {
	marked := o.config.Book.Marked()
	o.mu.Lock()
	defer o.mu.Unlock()
	return !slices.ContainsFunc(o.nodes, func(n view) bool {
		return !n.dropped && (n.asked.IsZero() || n.asked.Before(marked) || n.list.Failed || n.list.Unhealed > 0)
	})
}

// sighted reports whether every search for a registration has ended.
func (o *observer) sighted() bool { return o.sightings.count.Load() == 0 }

// into adds the observations to a trial, in the order of their times. Call it after run has returned.
func (o *observer) into(t *trial.Trial) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.seen
	t.Lists = append(t.Lists, sorted(s.Lists, func(l trial.List) (trial.Micros, int) { return l.Asked, l.Node })...)
	t.Sightings = append(t.Sightings, sorted(s.Sightings, func(s trial.Sighting) (trial.Micros, int) { return s.Acked, s.To })...)
	t.Departures = append(t.Departures, slices.DeleteFunc(o.config.Book.Departures(o.config.Began), func(d trial.Departure) bool {
		return d.Gone < 0 && o.nodes[d.Node].dropped // otherwise it might have stopped listing the instance
	})...)
	t.Evictions = append(t.Evictions, sorted(s.Evictions, func(e trial.Eviction) (trial.Micros, int) { return e.At, e.Node })...)
	t.Leaders = append(t.Leaders, sorted(s.Leaders, func(l trial.Leader) (trial.Micros, int) { return l.At, l.Node })...)
	t.Machine = append(t.Machine, s.Machine...)
	t.Usage = append(t.Usage, sorted(s.Usage, func(u trial.Usage) (trial.Micros, int) { return u.At, u.Node })...)
}

// sorted orders observations by their times, and those of one moment by node.
func sorted[T any](all []T, of func(T) (trial.Micros, int)) []T {
	slices.SortStableFunc(all, func(a, b T) int {
		at, node := of(a)
		atB, nodeB := of(b)
		return cmp.Or(cmp.Compare(at, atB), cmp.Compare(node, nodeB))
	})
	return all
}
