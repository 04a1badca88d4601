package observe

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const (
	sightApp = "SIGHT"
	// sightLease is a lease, in seconds, that needs no renewal before its cancel.
	sightLease = 90
	// sightLimit is for how long a registration is searched for, and sightLimitCached at servers that make their documents
	// every 30 s.
	sightLimit       = 10 * time.Second
	sightLimitCached = 70 * time.Second
	// sightLeast is how long a search must have lasted, when the observation ends, for its registration to count as not
	// seen. A younger one does not count.
	sightLeast = 2 * time.Second
	// mostSightings bounds the registrations under way at one time. Those due beyond it are left out.
	mostSightings = 200
)

// sightings registers instances of its own through each node in turn, and looks for each at every node by every way.
type sightings struct {
	observer   *Observer
	homes      []*client.Client // by node: asks it alone
	everywhere *client.Client
	lookouts   []*lookout
	count      atomic.Int64 // under way

	mu       sync.Mutex
	waiting  map[string]*sighting // by id; the sightings that watches may show
	watching []bool               // by node: its stream has begun once
}

// sighting is one registration.
type sighting struct {
	id       string
	from     int
	acked    time.Time        // of the registration; set before lookouts have the sighting
	watches  []chan time.Time // by node: when its watch showed the registration, once; the zero time: it never will
	searches atomic.Int64     // searches that have not finished
	done     chan struct{}    // closed when all have finished
}

func newSightings(o *Observer) *sightings {
	s := &sightings{observer: o, waiting: make(map[string]*sighting), watching: make([]bool, len(o.config.Nodes))}
	var all []string
	for node, addr := range o.config.Nodes {
		s.homes = append(s.homes, newClient(o.http, 2*patience, "http://"+addr))
		all = append(all, "http://"+addr)
		for _, glance := range o.glances() {
			s.lookouts = append(s.lookouts, newLookout(o, node, glance))
		}
	}
	if len(all) > 0 {
		s.everywhere = newClient(o.http, 2*patience, all...)
	}
	return s
}

// sightLimit is for how long a registration is searched for.
func (o *Observer) sightLimit() time.Duration {
	if o.config.Column.System == scenario.Eureka {
		return sightLimitCached
	}
	return sightLimit
}

// glances are the ways of looking that the column's servers have, beside the watch.
func (o *Observer) glances() []glance {
	if o.config.Column.System == scenario.Rollcall {
		return []glance{byRead, byStaleRead, byList, byDelta}
	}
	return []glance{byRead, byList, byDelta}
}

// run begins a sighting whenever one is due, until ctx ends. The first waits until the nodes' streams may have begun.
func (s *sightings) run(ctx context.Context) {
	if s.observer.config.Sightings <= 0 {
		return
	}
	var under sync.WaitGroup
	defer under.Wait()
	for _, l := range s.lookouts {
		under.Go(func() { l.run(ctx) })
	}
	every := time.Duration(float64(time.Second) / s.observer.config.Sightings)
	if !wire.Pause(ctx, s.observer.config.Every) {
		return
	}
	number := 0
	repeat(ctx, every, func() time.Duration {
		if time.Now().After(s.observer.config.Began.Add(s.observer.config.Length)) {
			return longPause // those that have begun are searched for until ctx ends
		}
		n := number
		number++
		if s.count.Load() < mostSightings {
			s.count.Add(1)
			under.Go(func() {
				defer s.count.Add(-1)
				s.sight(ctx, n)
			})
		}
		return 0
	})
}

// sight registers an instance, waits until it was seen everywhere, and cancels it again, so that registries stay small.
func (s *sightings) sight(ctx context.Context, n int) {
	g := s.expect(n)
	defer s.remove(g)
	if s.observer.isDropped(g.from) {
		return
	}
	instance := g.instance()
	defer s.cancel(ctx, instance.Key(), g.from)
	book := s.observer.config.Book
	book.Registering(g.id, 0, time.Now())
	if err := s.homes[g.from].Register(ctx, instance); err != nil {
		return
	}
	g.acked = time.Now()
	book.Registered(g.id, 0, g.acked)
	for _, l := range s.lookouts {
		l.add(g)
	}
	limited, cancel := context.WithTimeout(ctx, s.observer.sightLimit())
	defer cancel()
	for node := range g.watches {
		if !s.observer.config.Column.Streams() {
			break
		}
		if s.observer.isDropped(node) {
			continue
		}
		switch at, shown := g.awaitWatch(limited, node); {
		case !shown:
			s.observer.unseen(g, node, trial.ByWatch)
		case !at.IsZero():
			s.observer.sighted(g, node, trial.ByWatch, at)
		}
	}
	select {
	case <-g.done:
	case <-ctx.Done():
	}
}

// awaitWatch is when the watch of a node showed the registration; shown is false if it had not when ctx ended.
func (g *sighting) awaitWatch(ctx context.Context, node int) (at time.Time, shown bool) {
	select {
	case at = <-g.watches[node]:
		return at, true
	case <-ctx.Done():
	}
	select {
	case at = <-g.watches[node]:
		return at, true
	default:
		return time.Time{}, false
	}
}

// expect makes a sighting that watches may show before its registration is acknowledged.
func (s *sightings) expect(n int) *sighting {
	g := &sighting{
		id:   fmt.Sprintf("sight-%x-%d", s.observer.config.Seed, n),
		from: n % len(s.homes),
		done: make(chan struct{}),
	}
	g.searches.Store(int64(len(s.lookouts)))
	s.mu.Lock()
	defer s.mu.Unlock()
	for node, watching := range s.watching {
		g.watches = append(g.watches, make(chan time.Time, 1))
		if !watching {
			g.recordWatch(node, time.Time{})
		}
	}
	s.waiting[g.id] = g
	return g
}

func (s *sightings) remove(g *sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, g.id)
}

// recordWatch records that a node's watch showed a registration.
func (s *sightings) recordWatch(node int, id string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.waiting[id]; g != nil {
		g.recordWatch(node, at)
	}
}

// recordStreamStart records that a node's stream has begun.
func (s *sightings) recordStreamStart(node int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watching[node] = true
}

// skip records that a node's watch left out what happened until now.
func (s *sightings) skip(node int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.waiting {
		g.recordWatch(node, time.Time{})
	}
}

// recordWatch keeps the first time that the watch of a node reports.
func (g *sighting) recordWatch(node int, at time.Time) {
	select {
	case g.watches[node] <- at:
	default:
	}
}

// instance is what is registered.
func (g *sighting) instance() *registry.Instance {
	return &registry.Instance{
		InstanceID: g.id, HostName: g.id, App: sightApp, IPAddr: "127.0.0.1", Status: registry.Up,
		Port: registry.Port{Number: 8080, Enabled: true}, CountryID: 1, DataCenter: registry.DataCenter{Name: registry.MyOwn},
		RenewalInterval: sightLease / 3, Duration: sightLease, VIP: sightApp, LastDirty: time.Now().UnixMilli(),
	}
}

// cancel removes an instance where it was registered, or else where that can be done.
func (s *sightings) cancel(ctx context.Context, key registry.Key, home int) {
	if ctx.Err() != nil {
		return
	}
	book := s.observer.config.Book
	book.Canceling(key.ID, 0, time.Now())
	if s.homes[home].Cancel(ctx, key) == nil || s.everywhere.Cancel(ctx, key) == nil {
		book.Canceled(key.ID, 0, time.Now())
	}
}

// sighted records that a registration was seen, by a look or by a watch, at a time.
func (o *Observer) sighted(g *sighting, node int, way trial.Way, at time.Time) {
	o.addSighting(g, node, way, max(trial.Of(at.Sub(g.acked)), 0))
}

// unseen records that the search for a registration was given up, unless the node was lost meanwhile.
func (o *Observer) unseen(g *sighting, node int, way trial.Way) {
	if time.Since(g.acked) >= sightLeast && !o.isDropped(node) {
		o.addSighting(g, node, way, -1)
	}
}

func (o *Observer) addSighting(g *sighting, node int, way trial.Way, delay trial.Micros) {
	o.add(func(t *trial.Trial) {
		t.Sightings = append(t.Sightings, trial.Sighting{From: g.from, To: node, Way: way, Acked: o.at(g.acked), Delay: delay})
	})
}
