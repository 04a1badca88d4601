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
	// sightLimit is how long a registration is searched for, and sightLimitCached the same at servers that make their
	// documents every 30 s.
	sightLimit       = 10 * time.Second
	sightLimitCached = 70 * time.Second
	// sightLeast is how long a search must have lasted, when the observation ends, for its registration to count as
	// not seen. A younger one does not count.
	sightLeast = 2 * time.Second
	// mostSightings bounds the registrations under way at one time. Beyond it those due are left out.
	mostSightings = 200
)

// sightings registers its own instances through each node in turn, and looks for each at every node in every way.
type sightings struct {
	observer   *Observer
	homes      []*client.Client // by node: asks only that node
	everywhere *client.Client
	lookouts   []*lookout
	watches    []*lookout   // lookouts that read streams of changes, by node; empty if the servers have none
	count      atomic.Int64 // under way
}

// sighting is one registration.
type sighting struct {
	id    string
	from  int
	acked time.Time      // set before lookouts search
	found sync.WaitGroup // the searches that have not ended
}

func newSightings(o *Observer) *sightings {
	s := &sightings{observer: o}
	var all []string
	for node, addr := range o.config.Nodes {
		s.homes = append(s.homes, newClient(o.http, 2*patience, "http://"+addr))
		all = append(all, "http://"+addr)
		for _, glance := range o.glances() {
			s.lookouts = append(s.lookouts, newLookout(o, node, glance))
		}
		if o.config.Column.Streams() {
			s.watches = append(s.watches, newLookout(o, node, glance{way: trial.ByWatch}))
		}
	}
	s.lookouts = append(s.lookouts, s.watches...)
	if len(all) > 0 {
		s.everywhere = newClient(o.http, 2*patience, all...)
	}
	return s
}

// sightLimit returns how long a registration is searched for.
func (o *Observer) sightLimit() time.Duration {
	if o.config.Column.System == scenario.Eureka {
		return sightLimitCached
	}
	return sightLimit
}

// glances returns the ways of looking that the column's servers have, beside the watch.
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
		if l.glance.path != nil {
			under.Go(func() { l.run(ctx) })
		}
	}
	every := time.Duration(float64(time.Second) / s.observer.config.Sightings)
	if !wire.Pause(ctx, s.observer.config.Every) {
		return
	}
	number := 0
	repeat(ctx, every, func() time.Duration {
		if time.Now().After(s.observer.config.Began.Add(s.observer.config.Length)) {
			return longPause // sightings under way are continued until ctx ends
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

// sight registers an instance, waits until it was seen everywhere, and cancels it again, so that registries stay
// small.
func (s *sightings) sight(ctx context.Context, n int) {
	g := &sighting{id: fmt.Sprintf("sight-%x-%d", s.observer.config.Seed, n), from: n % len(s.homes)}
	if s.observer.isDropped(g.from) {
		return
	}
	for _, l := range s.watches { // a stream may show it before the acknowledgement comes
		l.expect(g)
	}
	instance := g.instance()
	defer s.cancel(ctx, instance.Key(), g.from)
	book := s.observer.config.Book
	book.Registering(g.id, 0, time.Now())
	if err := s.homes[g.from].Register(ctx, instance); err != nil {
		for _, l := range s.watches {
			l.forget(g)
		}
		return
	}
	g.acked = time.Now()
	book.Registered(g.id, 0, g.acked)
	g.found.Add(len(s.lookouts))
	for _, l := range s.lookouts {
		l.begin(g)
	}
	limit, stop := context.WithTimeout(ctx, s.observer.sightLimit())
	defer stop()
	defer context.AfterFunc(limit, func() {
		for _, l := range s.lookouts {
			l.giveUp(g)
		}
	})()
	g.found.Wait()
}

// instance returns the instance to register.
func (g *sighting) instance() *registry.Instance {
	return &registry.Instance{
		InstanceID: g.id, HostName: g.id, App: sightApp, IPAddr: "127.0.0.1", Status: registry.Up,
		Port: registry.Port{Number: 8080, Enabled: true}, CountryID: 1, DataCenter: registry.DataCenter{Name: registry.MyOwn},
		RenewalInterval: sightLease / 3, Duration: sightLease, VIP: sightApp, LastDirty: time.Now().UnixMilli(),
	}
}

// cancel removes an instance where it was registered, or else wherever it can.
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
