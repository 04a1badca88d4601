package integration

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// counter is a key whose value one writer counts up, and when each value was acknowledged.
type counter struct {
	mu    sync.Mutex
	acked []time.Time // of the value that is the index
}

// write counts the key up at a node, fifty times a second, until the test says so.
func (c *counter) write(n *Node, key string, done <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c.mu.Lock()
		next := len(c.acked)
		c.mu.Unlock()
		response := n.Do(Request{Method: http.MethodPut, Path: "/v1/kv/" + key, Body: []byte(strconv.Itoa(next))})
		if response.Status == http.StatusOK {
			c.mu.Lock()
			c.acked = append(c.acked, time.Now())
			c.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-done:
			return
		}
	}
}

// behind is how long before a time the value after the one that a reader got was acknowledged; 0: the reader got the
// newest value of that time.
func (c *counter) behind(got int, asOf time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if got+1 >= len(c.acked) {
		return 0
	}
	return max(0, asOf.Sub(c.acked[got+1]))
}

// TestMaxStaleIsKeptByAFollowerWithASlowDisk reads a follower that stores entries late and receives the leader's
// heartbeats in time.
func TestMaxStaleIsKeptByAFollowerWithASlowDisk(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{}))
	leader := c.Leader()
	slow := c.Others(leader)[0]
	slow.Settings["test.sync-delay"] = "300ms"
	for again := true; again; again = leader == slow { // it must follow; as a leader it would prove nothing
		slow.Stop(t)
		slow.Start(t)
		slow.WaitReady(t)
		leader = c.Leader()
	}

	const maxStale = 100 * time.Millisecond // its state is older most of the time, but not so old that it refuses to wait for the rest
	var count counter
	var writer sync.WaitGroup
	done := make(chan struct{})
	writer.Go(func() { count.write(leader, "n", done) })
	defer writer.Wait()
	defer close(done)
	kept, late := 0, 0
	began := time.Now()
	for end := began.Add(8 * time.Second); time.Now().Before(end) || (late == 0 || kept == 0) && time.Since(began) < ReadyLimit; {
		asked := time.Now()
		response := slow.Get("/v1/kv/n?raw&stale")
		if response.Status != http.StatusOK {
			continue
		}
		got, err := strconv.Atoi(string(response.Body))
		need.OKf(t, err, "%q", response.Body)
		contact, err := strconv.Atoi(response.Header.Get("X-Consul-LastContact"))
		need.OKf(t, err, "X-Consul-LastContact")
		if by := count.behind(got, asked); by > time.Duration(contact+1)*time.Millisecond {
			t.Fatalf("X-Consul-LastContact is %d ms, but the value is of %v ago", contact, by)
		} else if by > maxStale {
			late++
		}
		asked = time.Now()
		// Its state is too old, so it asks the leader, and waits until it has the leader's state.
		response = slow.Get("/v1/kv/n?raw&max_stale=" + maxStale.String())
		if response.Status != http.StatusOK {
			continue
		}
		if got, err = strconv.Atoi(string(response.Body)); err != nil {
			t.Fatalf("%q: %v", response.Body, err)
		}
		by := count.behind(got, asked)
		need.That(t, by <= maxStale, "max_stale=%v was answered with a value of %v ago", maxStale, by)
		kept++
	}
	t.Logf("%d answers within max_stale, %d stale ones of longer ago", kept, late)
	expect.That(t, late != 0 && kept != 0, "the slow follower was never so far behind, or never answered within max_stale: nothing was tested")
}
