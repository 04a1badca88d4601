package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

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

// contender acquires a lock or a permit at each call, and returns its release.
type contender func(ctx context.Context) (release func() error, err error)

// byGo contends through package client, with LockOptions.Recipe; limit 0 is for a lock.
func byGo(c *client.Client, name string, limit int) contender {
	return func(ctx context.Context) (func() error, error) {
		o := client.LockOptions{Name: name, TTL: 10 * time.Second, LockDelay: -1, Recipe: true}
		acquire := func() (*client.Held, error) { return c.AcquireLock(ctx, o) }
		if limit > 0 {
			acquire = func() (*client.Held, error) {
				return c.AcquireSemaphore(ctx, client.SemaphoreOptions{LockOptions: o, Limit: limit})
			}
		}
		held, err := acquire()
		if err != nil {
			return nil, err
		}
		if err := held.Err(); err != nil {
			return nil, err
		}
		return func() error { return held.Release(ctx) }, nil
	}
}

// byConsul contends through Consul's official client, for a key that byGo's name stands for.
func byConsul(c *api.Client, name string, limit int) contender {
	return func(ctx context.Context) (func() error, error) {
		if limit > 0 {
			s, err := c.SemaphoreOpts(&api.SemaphoreOptions{Prefix: "semaphore/" + name, Limit: limit, SessionTTL: "10s"})
			if err != nil {
				return nil, err
			}
			return s.Release, won(s.Acquire(ctx.Done()))
		}
		l, err := c.LockOpts(lockOptions("lock/" + name))
		if err != nil {
			return nil, err
		}
		return l.Unlock, won(l.Lock(ctx.Done()))
	}
}

// won returns nil if Consul's client has what it waited for.
func won(lost <-chan struct{}, err error) error {
	if err == nil && lost == nil {
		err = errors.New("not acquired in time")
	}
	return err
}

// contenders returns two of each kind at each node.
func contenders(t *testing.T, c *Cluster, name string, limit int) []contender {
	t.Helper()
	var all []contender
	for _, n := range c.Nodes {
		all = append(all, byGo(goClient(t, client.Config{Servers: []string{n.URL()}}), name, limit), byConsul(consulClient(t, n), name, limit))
	}
	return all
}

// contest has contenders hold in turns, and returns the most that held at the same time.
func contest(t *testing.T, all []contender, turns int) (most int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*ReadyLimit)
	defer cancel()
	var inside, peak atomic.Int64
	errs := make(chan error, len(all))
	for i, acquire := range all {
		go func() {
			errs <- func() error {
				for turn := range turns {
					release, err := acquire(ctx)
					if err != nil {
						return fmt.Errorf("contender %d, turn %d: %w", i, turn, err)
					}
					raise(&peak, inside.Add(1))
					<-time.After(20 * time.Millisecond) // the work
					inside.Add(-1)
					if err := release(); err != nil {
						return fmt.Errorf("contender %d, turn %d: release: %w", i, turn, err)
					}
				}
				return nil
			}()
		}()
	}
	for range all {
		expect.OK(t, <-errs)
	}
	return peak.Load()
}

// raise makes peak at least n.
func raise(peak *atomic.Int64, n int64) {
	for {
		if was := peak.Load(); was >= n || peak.CompareAndSwap(was, n) {
			return
		}
	}
}

// Package client, with Recipe, and Consul's official client contend for one lock at three nodes.
func TestLocksOfGoAndConsulsClientsExcludeEachOther(t *testing.T) {
	t.Parallel()
	most := contest(t, contenders(t, StartCluster(t, withSteadyLeader(Config{})), "shared", 0), 5)
	expect.That(t, most == 1, "%d held the lock at a time, want 1", most)
}

// TestSemaphoreIsSharedByGoAndConsulsClients is the same for a semaphore of three.
func TestSemaphoreIsSharedByGoAndConsulsClients(t *testing.T) {
	t.Parallel()
	const limit = 3
	c := StartCluster(t, withSteadyLeader(Config{}))
	most := contest(t, contenders(t, c, "shared", limit), 5)
	expect.That(t, most <= limit, "%d held a permit at a time, want %d at most", most, limit)
	pair := value[*api.KVPair, *api.QueryMeta](t)(consulClient(t, c.Nodes[0]).KV().Get("semaphore/shared/.lock", nil))
	var list struct{ Holders map[string]bool }
	if need.OK(t, json.Unmarshal(pair.Value, &list)); len(list.Holders) > 0 {
		t.Errorf("when all are done the holders are %v, want none", list.Holders)
	}
}

// Each sees what the other holds, and its description.
func TestLocksOfGoAndConsulsClientsAreShownToEachOther(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{}))
	ours, theirs := goClient(t, client.Config{Servers: []string{c.Nodes[0].URL()}}), consulClient(t, c.Nodes[1])
	kv := theirs.KV()
	recipe := func(name string) client.LockOptions {
		return client.LockOptions{Name: name, TTL: 10 * time.Second, Try: true, Recipe: true}
	}

	held := need.Got(ours.AcquireLock(t.Context(), recipe("mine")))(t)
	pair := value[*api.KVPair, *api.QueryMeta](t)(kv.Get("lock/mine", nil))
	expect.That(t, pair.Session == held.Session() && pair.Flags == api.LockFlagValue && strings.HasPrefix(string(pair.Value), "lock:"),
		"Consul's client sees %+v, want session %s, the flags of a lock, and lock:TIME", pair, held.Session())
	once := lockOptions("lock/mine")
	once.LockTryOnce, once.LockWaitTime = true, time.Millisecond
	l := need.Got(theirs.LockOpts(once))(t)
	lost, err := l.Lock(nil)
	expect.That(t, lost == nil && err == nil, "Consul's client has the lock beside ours: %v", err)
	need.OK(t, held.Release(t.Context()))
	if pair = value[*api.KVPair, *api.QueryMeta](t)(kv.Get("lock/mine", nil)); pair.Session != "" || !strings.HasPrefix(string(pair.Value), "unlock:") {
		t.Errorf("after its release Consul's client sees %+v, want no session, and unlock:TIME", pair)
	}
	need.OK(t, won(l.Lock(nil)))
	holder := value[*api.KVPair, *api.QueryMeta](t)(kv.Get("lock/mine", nil)).Session
	if _, err := ours.AcquireLock(t.Context(), recipe("mine")); !errors.Is(err, client.ErrNotAcquired) || !strings.Contains(err.Error(), holder) {
		t.Errorf("our try says %v, want %v and session %s", err, client.ErrNotAcquired, holder)
	}
	need.OK(t, l.Unlock())

	need.OK(t, second(kv.Put(&api.KVPair{Key: "lock/other"}, nil)))
	expect.ErrorIs(t, expect.Err(ours.AcquireLock(t.Context(), recipe("other"))), client.ErrKeyConflict, "of a key that is no lock's our client says")

	s := need.Got(theirs.SemaphorePrefix("semaphore/both", 2))(t)
	need.OK(t, won(s.Acquire(nil)))
	expect.ErrorIs(t, expect.Err(ours.AcquireSemaphore(t.Context(), client.SemaphoreOptions{LockOptions: recipe("both"), Limit: 3})), client.ErrLimit,
		"with another limit than Consul's client our client says")
	permit := need.Got(ours.AcquireSemaphore(t.Context(), client.SemaphoreOptions{LockOptions: recipe("both"), Limit: 2}))(t)
	pairs := value[api.KVPairs, *api.QueryMeta](t)(kv.List("semaphore/both/", nil))
	var keys []string
	for _, p := range pairs {
		keys = append(keys, p.Key)
	}
	expect.That(t, slices.Contains(keys, "semaphore/both/"+permit.Session()) && len(keys) == 3,
		"Consul's client sees %v, want the list and two contenders, one of them %s", keys, permit.Session())
	// Our session is destroyed: Consul's client gets the permit, and ours learns that it no longer has one.
	need.OK(t, second(theirs.Session().Destroy(permit.Session(), nil)))
	another := need.Got(theirs.SemaphorePrefix("semaphore/both", 2))(t)
	need.OK(t, won(another.Acquire(nil)))
	select {
	case <-permit.Context().Done():
	case <-time.After(ReadyLimit):
		t.Error("the holder does not learn that its permit is lost")
	}
	expect.ErrorIs(t, permit.Release(t.Context()), client.ErrLost, "its release says")
	need.OK(t, s.Release())
	need.OK(t, another.Release())
}
