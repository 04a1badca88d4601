package integration

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// won returns nil if Consul's client has what it waited for.
func won(lost <-chan struct{}, err error) error {
	if err == nil && lost == nil {
		err = errors.New("not acquired in time")
	}
	return err
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
