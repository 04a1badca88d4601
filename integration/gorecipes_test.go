package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// contender acquires a lock or a permit at each call, and returns its release.
type contender func(ctx context.Context) (release func() error, err error)

// byGo contends by package client, with LockOptions.Recipe; limit 0: for a lock.
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

// byConsul contends by Consul's official client, for a key that byGo's name stands for.
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

// contenders are two of each kind at each node.
func contenders(t *testing.T, c *Cluster, name string, limit int) []contender {
	t.Helper()
	var all []contender
	for _, n := range c.Nodes {
		all = append(all, byGo(goClient(t, client.Config{Servers: []string{n.URL()}}), name, limit), byConsul(consulClient(t, n), name, limit))
	}
	return all
}

// contest has contenders hold in turns, and returns how many held at the same time at most.
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

// TestLocksOfGoAndConsulsClientsExcludeEachOther: package client, with Recipe, and Consul's official client contend
// for one lock at three nodes.
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

// TestLocksOfGoAndConsulsClientsAreShownToEachOther: each sees what the other holds, and its description.
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
	// Our session is destroyed: Consul's client gets the permit, and ours learns that it has none.
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
