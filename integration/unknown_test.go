package integration

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// The promise: a write that was answered 504 takes effect before every acknowledged write that was sent a second after
// that response, or never.

// afterUnknown is how long after the response 504 a client that relies on the promise waits.
const afterUnknown = time.Second

// doubleWrite is a client that gives one write up and makes another one elsewhere: of a key, whose old value
// must not come back, or of an instance, whose cancel must not come late.
type doubleWrite struct {
	id       string
	instance bool
	old      Response // to the write that may be given up
	ended    time.Time
}

func (r *doubleWrite) key() string { return "/v1/kv/" + r.id }

func (r *doubleWrite) setUp(t *testing.T, n *Node) {
	if r.instance {
		mustRegister(t, n, Instance{App: "GIVENUP", ID: r.id})
	}
}

// first makes the write that may be given up.
func (r *doubleWrite) first(n *Node) {
	if r.instance {
		r.old = n.Do(Request{Method: http.MethodDelete, Path: path("GIVENUP", r.id)})
	} else {
		r.old = n.Do(Request{Method: http.MethodPut, Path: r.key(), Body: []byte("OLD")})
	}
	r.ended = time.Now()
}

// second makes the later write, until it is acknowledged.
func (r *doubleWrite) second(t *testing.T, n *Node) {
	time.Sleep(time.Until(r.ended.Add(afterUnknown)))
	Eventually(t, ReadyLimit, "the second write is acknowledged", func() error {
		if r.instance {
			return n.Register(Instance{App: "GIVENUP", ID: r.id}).is(http.StatusNoContent)
		}
		return n.Do(Request{Method: http.MethodPut, Path: r.key(), Body: []byte("NEW")}).is(http.StatusOK)
	})
}

// check returns nil if the later write stands.
func (r *doubleWrite) check(n *Node) error {
	if r.instance {
		response := n.Get(path("GIVENUP", r.id) + "?consistency=linearizable")
		return unless(response.Status != http.StatusNotFound, "instance %s is gone at %s: its cancel was answered %d, and it was registered again", r.id, n.Name, r.old.Status)
	}
	response := n.Get(r.key() + "?raw&consistent")
	return unless(response.Status != http.StatusOK || string(response.Body) == "NEW", "key %s is %q at %s: that was answered %d, and NEW written after it", r.id, response.Body, n.Name, r.old.Status)
}

// giveUp has clients write at a node that gets no results from that moment on, and again at another after the response.
// It returns when the second writes are acknowledged.
func giveUp(t *testing.T, name string, count int, at, later *Node, hold func()) []*doubleWrite {
	t.Helper()
	writes := make([]*doubleWrite, count)
	for i := range writes {
		writes[i] = &doubleWrite{id: fmt.Sprintf("%s-%d", name, i), instance: i%2 == 1}
		writes[i].setUp(t, later)
	}
	mustRegister(t, at, Instance{App: "BEFORE", ID: name}) // it knows the leader, and has what the test prepared
	hold()
	var all sync.WaitGroup
	for _, r := range writes {
		all.Go(func() {
			r.first(at)
			r.second(t, later)
		})
	}
	all.Wait()
	return writes
}

// held counts the clients whose first write was answered 504, and checks for a moment that no such write comes late.
func held(t *testing.T, c *Cluster, writes []*doubleWrite) int {
	t.Helper()
	c.WaitReady()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		for i, r := range writes {
			need.OK(t, r.check(c.Nodes[i%len(c.Nodes)]))
		}
	}
	unknown := 0
	for _, r := range writes {
		if r.old.Status == http.StatusGatewayTimeout {
			unknown++
		}
	}
	return unknown
}

// atOnce is how many writes are given up in a round: as many as a node has batches on their way, because those behind
// them are never sent.
const atOnce = 2

// delayedResponsesRound pauses the leader while writes are on their way to it.
func delayedResponsesRound(t *testing.T) {
	c := StartCluster(t, Config{})
	leader := c.Leader()
	follower, other := c.Others(leader)[0], c.Others(leader)[1]
	writes := giveUp(t, "pause", atOnce, follower, other, func() { leader.Pause(t) })
	leader.Resume(t)
	t.Logf("%d of %d writes were answered 504", held(t, c, writes), atOnce)
}

// TestWriteThatWasGivenUpDuringAPauseIsNotPerformed leaves requests in the sockets of a node
// that stands still.
func TestWriteThatWasGivenUpDuringAPauseIsNotPerformed(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	paused := c.Others(c.Leader())[0]
	other := c.Others(paused)[0]
	const keys = 10
	paused.Pause(t)
	var clients sync.WaitGroup
	for i := range keys {
		clients.Go(func() { paused.PutWithin(fmt.Sprintf("/v1/kv/k%d", i), "OLD", 300*time.Millisecond) })
	}
	clients.Wait()
	for i := range keys {
		said, err := other.putOK(fmt.Sprintf("/v1/kv/k%d", i), "NEW")
		need.That(t, err == nil && said == "true", "write at %s: %q, %v", other.Name, said, err)
	}
	Pass(t, time.Second) // so long that the node notices the pause
	paused.Resume(t)
	paused.WaitReady(t)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		for i := range keys {
			if response := other.Get(fmt.Sprintf("/v1/kv/k%d?raw&consistent", i)); response.Status == http.StatusOK && string(response.Body) != "NEW" {
				t.Fatalf("k%d is %q: the client had given that up", i, response.Body)
			}
		}
	}
}
