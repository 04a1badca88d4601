package sim_test

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// counter is a key that one writer counts up, and when each value was acknowledged.
type counter struct {
	mu    sync.Mutex
	acked []time.Time // by value
}

// write counts the key up at a node, fifty times a second, until the channel is closed.
func (c *counter) write(w *sim.World, node, key string, ended <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c.mu.Lock()
		next := len(c.acked)
		c.mu.Unlock()
		if w.Call(node, "PUT", "/v1/kv/"+key, strconv.Itoa(next)).Status == http.StatusOK {
			c.mu.Lock()
			c.acked = append(c.acked, time.Now())
			c.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ended:
			return
		}
	}
}

// behind returns how long before a time the value after the one that a reader got was acknowledged; 0: the reader got
// the newest of that time.
func (c *counter) behind(got int, asOf time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if got+1 >= len(c.acked) {
		return 0
	}
	return max(0, asOf.Sub(c.acked[got+1]))
}

// TestMaxStaleIsKeptByAFollowerWithASlowDisk reads a follower that stores entries late and hears the leader in time.
func TestMaxStaleIsKeptByAFollowerWithASlowDisk(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		const maxStale = 100 * time.Millisecond
		leader := w.Leader()
		slow := w.Others(leader)[0]
		w.SlowDisk(slow, 300*time.Millisecond)
		var count counter
		ended, written := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(written)
			count.write(w, leader, "n", ended)
		}()
		w.Wait(time.Second)
		kept, late := 0, 0
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); w.Wait(7 * time.Millisecond) {
			asked := time.Now()
			if r := w.Call(slow, "GET", "/v1/kv/n?raw&stale", ""); r.Status == http.StatusOK {
				contact := need.Got(strconv.Atoi(r.Header.Get("X-Consul-LastContact")))(w)
				by := count.behind(need.Got(strconv.Atoi(r.Body))(w), asked)
				need.That(w, by <= time.Duration(contact+1)*time.Millisecond,
					"X-Consul-LastContact is %d ms, but the value is of %v ago", contact, by)
				if by > maxStale {
					late++
				}
			}
			asked = time.Now()
			if r := w.Call(slow, "GET", "/v1/kv/n?raw&max_stale="+maxStale.String(), ""); r.Status == http.StatusOK {
				by := count.behind(need.Got(strconv.Atoi(r.Body))(w), asked)
				need.That(w, by <= maxStale, "max_stale=%v is answered with a value of %v ago", maxStale, by)
				kept++
			}
		}
		close(ended)
		<-written
		w.Logf("%d answers within max_stale, %d stale ones of longer ago", kept, late)
		expect.That(w, kept > 0 && late > 0,
			"%d answers within max_stale, %d stale ones of longer ago: nothing was tested", kept, late)
	})
}
