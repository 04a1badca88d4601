package compare

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

const (
	sightApp    = "SIGHT"
	sightPrefix = "sight-" // of ids
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
	*observer
	homes      []*client.Client // by node: asks only that node
	everywhere *client.Client
	lookouts   []*lookout
	watches    []*lookout // lookouts that read streams of changes, by node; empty if the servers have none
	limit      time.Duration
	count      atomic.Int64 // under way
}

// sighting is one registration.
type sighting struct {
	id    string
	from  int
	sent  time.Time
	acked time.Time      // set before lookouts search
	found sync.WaitGroup // the searches that have not ended
}

func newSightings(o *observer) *sightings {
	s := &sightings{observer: o, limit: sightLimit}
	if o.config.caches() {
		s.limit = sightLimitCached
	}
	ways := slices.Clone(glances)
	if o.config.Column.System == scenario.Rollcall {
		ways = append(ways, byStaleRead)
	}
	var all []string
	for node, addr := range o.config.Nodes {
		s.homes = append(s.homes, newClient(o, "http://"+addr))
		all = append(all, "http://"+addr)
		for _, way := range ways {
			s.lookouts = append(s.lookouts, newLookout(o, node, way))
		}
		if o.config.Column.Streams() {
			s.watches = append(s.watches, newLookout(o, node, glance{way: trial.ByWatch}))
		}
	}
	s.lookouts = append(s.lookouts, s.watches...)
	if len(all) > 0 {
		s.everywhere = newClient(o, all...)
	}
	return s
}

// newClient returns a client of some servers.
func newClient(o *observer, servers ...string) *client.Client {
	c, err := client.New(client.Config{Servers: servers, HTTPClient: o.http, Timeout: 2 * patience})
	if err != nil {
		panic(err) // the addresses of the servers are wrong
	}
	return c
}

// run begins a sighting whenever one is due, until ctx ends. The first waits until the nodes' streams may have begun.
func (s *sightings) run(ctx context.Context) {
	if s.config.Sightings <= 0 {
		return
	}
	var under sync.WaitGroup
	defer under.Wait()
	for _, l := range s.lookouts {
		if l.glance.path != "" {
			under.Go(func() { l.run(ctx) })
		}
	}
	if !wait.For(ctx, s.config.Every) {
		return
	}
	number := 0
	repeat(ctx, time.Duration(float64(time.Second)/s.config.Sightings), func() time.Duration {
		if time.Now().After(s.config.Began.Add(s.config.Length)) {
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
	g := &sighting{id: fmt.Sprintf("%s%x-%d", sightPrefix, s.config.Seed, n), from: n % len(s.homes), sent: time.Now()}
	if s.isDropped(g.from) {
		return
	}
	instance := g.instance()
	defer s.cancel(ctx, instance.Key(), g.from)
	s.config.Book.Registering(g.id, 0, g.sent)
	if s.homes[g.from].Register(ctx, instance) != nil {
		return
	}
	g.acked = time.Now()
	s.config.Book.Registered(g.id, 0, g.acked)
	g.found.Add(len(s.lookouts))
	for _, l := range s.lookouts {
		l.begin(g)
	}
	limit, stop := context.WithTimeout(ctx, s.limit)
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
	s.config.Book.Canceling(key.ID, 0, time.Now())
	if s.homes[home].Cancel(ctx, key) == nil || s.everywhere.Cancel(ctx, key) == nil {
		s.config.Book.Canceled(key.ID, 0, time.Now())
	}
}
