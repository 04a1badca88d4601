package integration

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// goScenario is an event in a cluster while a service of the Go client is registered and called.
type goScenario struct {
	name string
	// prepare returns how the clients find the servers, and what happens to the servers.
	prepare func(c *Cluster) (client.Config, happening)
	// unlisted is set if nodes may lack the instance for a time, because the event removes it.
	unlisted bool
}

type happening func(t *testing.T, c *Cluster, s *Service)

// toAll returns what happens to clients that know all nodes.
func toAll(what happening) func(c *Cluster) (client.Config, happening) {
	return func(c *Cluster) (client.Config, happening) { return client.Config{Servers: urls(c.Nodes...)}, what }
}

// Whatever happens to the servers, the instance stays in their lists, or comes back, and calls through the round
// tripper never fail.
func TestGoClientKeepsAServiceRegisteredAndCallable(t *testing.T) {
	t.Parallel()
	for _, tc := range []goScenario{
		{name: "the leader is killed", prepare: toAll(killTheLeader)},
		{name: "all servers are restarted", prepare: toAll(restartAll)},
		{name: "the servers are others", prepare: replaceServers},
		{name: "a server is paused", prepare: pauseTheServer},
		{name: "the registry is empty for a moment", prepare: toAll(emptyTheRegistry), unlisted: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, ap bool) { tc.run(t, StartCluster(t, Config{AP: ap})) })
		})
	}
}

func (tc goScenario) run(t *testing.T, c *Cluster) {
	config, happen := tc.prepare(c)
	s := StartService(t, "orders", config)
	caller := StartCaller(t, "orders", config, client.DiscoveryConfig{})
	awaitEverywhere(t, c, s)
	listing := Listing(t, s.key, c.Nodes...)
	began := time.Now()
	happen(t, c, s)
	s.awaitHeartbeat(t, time.Now())
	awaitEverywhere(t, c, s)
	Pass(t, serviceDuration+2*serviceInterval) // what was missed shows when a lease has ended
	t.Logf("%s: over %v: calls: %v; listed, as nodes answered (the time without any answer counts): %v",
		t.Name(), time.Since(began).Round(time.Millisecond), &caller.Calls, listing)
	good, bad := caller.Calls.counts()
	expect.That(t, bad <= 0 && good != 0, "calls: %v, want no bad ones", &caller.Calls)
	_, bad = listing.counts()
	expect.That(t, bad <= 0 || tc.unlisted, "listed: %v, want always", listing)
	caller.awaitWatch(t)
}

// awaitEverywhere waits until every running node lists the service as UP.
func awaitEverywhere(t *testing.T, c *Cluster, s *Service) {
	t.Helper()
	for _, n := range c.Running() {
		awaitOn(t, n, s.key.App, s.key.ID, "UP")
	}
}

// awaitHeartbeat waits until the cluster has accepted a heartbeat that was sent after a time.
func (s *Service) awaitHeartbeat(t *testing.T, after time.Time) {
	t.Helper()
	Eventually(t, ReadyLimit, "a heartbeat is taken", func() error {
		last := s.LastHeartbeat()
		return unless(last.After(after), "the last one was taken %v before: %v", after.Sub(last), s.Healthy())
	})
}

// awaitWatch waits until the caller's list follows a server.
func (c *Caller) awaitWatch(t *testing.T) {
	t.Helper()
	Eventually(t, ReadyLimit, "the list follows a server", func() error {
		status := c.Discovery.Status()
		return unless(status.Source == client.SourceWatch && status.Err == nil, "%+v", status)
	})
}

func killTheLeader(t *testing.T, c *Cluster, s *Service) {
	victim := c.Nodes[0]
	if victim.Mode == localcluster.CP {
		victim = c.Leader()
	}
	victim.Kill()
	Pass(t, serviceDuration)
	victim.Start(t)
	c.WaitReady()
}

func restartAll(t *testing.T, c *Cluster, s *Service) {
	Pass(t, 2*time.Second) // without consensus nodes write after they have responded
	for _, n := range c.Nodes {
		n.Kill()
	}
	Pass(t, serviceDuration+serviceInterval) // longer than the lease: an outage is not charged to any lease
	for _, n := range c.Nodes {
		n.Start(t)
	}
	c.WaitReady()
}

// replaceServers kills the only server that the clients know; their source names the others.
func replaceServers(c *Cluster) (client.Config, happening) {
	var current atomic.Pointer[[]string]
	know := func(nodes ...*Node) {
		known := urls(nodes...)
		current.Store(&known)
	}
	know(c.Nodes[0])
	config := client.Config{Source: func(context.Context) ([]string, error) { return *current.Load(), nil }}
	return config, func(t *testing.T, c *Cluster, s *Service) {
		know(c.Nodes[1:]...)
		c.Nodes[0].Kill()
		s.awaitHeartbeat(t, time.Now())
	}
}

// pauseTheServer stops the server that the clients talk to for three leases: it accepts connections and does not
// respond.
func pauseTheServer(c *Cluster) (client.Config, happening) {
	return client.Config{Servers: urls(c.Nodes...), InOrder: true}, func(t *testing.T, c *Cluster, s *Service) {
		c.Nodes[0].Pause(t)
		s.awaitHeartbeat(t, time.Now())
		Pass(t, 3*serviceDuration)
		c.Nodes[0].Resume(t)
		c.WaitReady()
	}
}

// emptyTheRegistry restarts all servers with empty disks.
func emptyTheRegistry(t *testing.T, c *Cluster, s *Service) {
	for _, n := range c.Nodes {
		n.Kill()
	}
	for _, n := range c.Nodes {
		need.OK(t, os.RemoveAll(n.Dir))
		n.Start(t)
	}
	c.WaitReady()
}

// Registration, its repair, discovery by deltas and Drain need nothing that only Rollcall has; calls that do return
// an error that says so.
func TestGoClientWorksWithAPublishedEurekaServer(t *testing.T) {
	t.Parallel()
	// Without a peer: a server takes an instance back when its peer answers an older heartbeat for it after the
	// cancel.
	eureka := startLoneEurekaServer(t, "", FreeAddr(t))
	config := client.Config{Servers: []string{eureka.Eureka()}, Timeout: CallLimit}
	s := StartService(t, "orders", config)
	other := goClient(t, config)
	d := need.Got(other.StartDiscovery(client.DiscoveryConfig{Interval: time.Second}))(t)
	shows := func(status string) {
		t.Helper()
		Eventually(t, clientLimit, "the list shows it as "+status, func() error {
			i := d.Snapshot().Instance(s.key)
			return unless(i != nil && i.Status.String() == status, "it shows %+v; %+v", i, d.Status())
		})
	}
	shows("UP")
	expect.Equal(t, d.Status().Source, client.SourceFetch, "the list comes from")
	// The server forgets it; the next heartbeat gets 404.
	mustDo(t, "cancel", eureka.Cancel(s.key.App, s.key.ID))
	awaitOn(t, eureka, s.key.App, s.key.ID, "UP")
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	need.OK(t, s.Drain(ctx, 0))
	shows("OUT_OF_SERVICE")
	need.OK(t, s.Deregister(ctx))
	Eventually(t, clientLimit, "the list is without it", func() error {
		return unless(d.Snapshot().Instance(s.key) == nil, "%+v", d.Status())
	})
	_, statusErr := other.Status(ctx)
	_, lockErr := other.AcquireLock(ctx, client.LockOptions{Name: "job", Try: true})
	watchErr := other.Watch(ctx, client.WatchConfig{}, func(client.WatchEvent) error { return nil })
	for what, err := range map[string]error{"Status": statusErr, "AcquireLock": lockErr, "Watch": watchErr} {
		expect.That(t, errors.Is(err, client.ErrNeedsRollcall), "%s: %v, want that it needs Rollcall", what, err)
	}
}
