package integration

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The promise: a write that was answered 504 takes effect before every acknowledged write that was sent a second after
// that response, or never.

// repeatEnv names the variable with the number of writes that each test must have answered 504; without it, one.
const repeatEnv = "ROLLCALL_UNKNOWN"

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

// giveUp has clients write at a node whose links are held at that moment, and again at another after the response.
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

// writeDuringCuts cuts the link of a follower to the leader, without a reset, while writes are given up.
func writeDuringCuts(t *testing.T, c *Cluster, links Network, cut time.Duration, name string, count int) int {
	t.Helper()
	c.WaitReady()
	leader := c.Leader()
	follower, other := c.Others(leader)[0], c.Others(leader)[1]
	var since time.Time
	writes := giveUp(t, name, count, follower, other, func() {
		since = time.Now()
		for _, p := range links.Between(leader, follower) {
			p.Hold()
		}
	})
	time.Sleep(time.Until(since.Add(cut)))
	for _, p := range links.Between(leader, follower) {
		p.Release()
	}
	return held(t, c, writes)
}

// writeDuringKills kills the leader while writes are on their way to it, and starts it again.
func writeDuringKills(t *testing.T, c *Cluster, links Network, name string, count int) int {
	t.Helper()
	c.WaitReady()
	leader := c.Leader()
	follower, other := c.Others(leader)[0], c.Others(leader)[1]
	var killed sync.WaitGroup
	writes := giveUp(t, name, count, follower, other, func() {
		for _, to := range []*Node{leader, other} {
			for _, p := range links.Between(follower, to) {
				p.Hold()
			}
		}
		killed.Go(func() {
			time.Sleep(300 * time.Millisecond) // the writes are under way
			leader.Kill()
			leader.Start(t)
		})
	})
	killed.Wait()
	links.Each(func(_, _ int, p *localcluster.Proxy) { p.Release() })
	return held(t, c, writes)
}

// writeDuringPauses pauses the leader while writes are on their way to it.
func writeDuringPauses(t *testing.T, c *Cluster, name string, count int) int {
	t.Helper()
	c.WaitReady()
	leader := c.Leader()
	follower, other := c.Others(leader)[0], c.Others(leader)[1]
	writes := giveUp(t, name, count, follower, other, func() { leader.Pause(t) })
	leader.Resume(t)
	return held(t, c, writes)
}

func TestWriteOfUnknownOutcomeDoesNotTakeEffectLater(t *testing.T) {
	t.Parallel()
	count, cuts := 1, []time.Duration{6 * time.Second}
	if text := os.Getenv(repeatEnv); text != "" {
		n, err := strconv.Atoi(text)
		need.OKf(t, err, "%s", repeatEnv)
		count, cuts = n, []time.Duration{6 * time.Second, 12 * time.Second, 20 * time.Second}
	}
	for _, cut := range cuts {
		t.Run("link cut for "+cut.String(), func(t *testing.T) {
			t.Parallel()
			untilUnknown(t, count, func(c *Cluster, links Network, round string) int {
				return writeDuringCuts(t, c, links, cut, round, atOnce)
			})
		})
	}
	t.Run("leader killed", func(t *testing.T) {
		t.Parallel()
		untilUnknown(t, count, func(c *Cluster, links Network, round string) int {
			return writeDuringKills(t, c, links, round, atOnce)
		})
	})
}

// atOnce is how many writes are given up in a round: as many as a node has batches on their way, because those behind
// them are never sent.
const atOnce = 2

// untilUnknown plays rounds until so many writes were answered 504.
func untilUnknown(t *testing.T, count int, play func(c *Cluster, links Network, round string) int) {
	c, links := newProxiedCluster(t)
	unknown, rounds := 0, 0
	for unknown < count && rounds < 2*count+4 {
		unknown += play(c, links, fmt.Sprintf("round%d", rounds))
		rounds++
	}
	t.Logf("%d rounds of %d writes, %d writes answered 504", rounds, atOnce, unknown)
	expect.That(t, unknown >= count, "%d writes were answered 504, want %d: too little was tested", unknown, count)
}

// delayedResponsesRound is a soak of the same, with the leader paused as well.
func delayedResponsesRound(t *testing.T) {
	c, links := newProxiedCluster(t)
	unknown := writeDuringCuts(t, c, links, 6*time.Second, "cut", atOnce)
	unknown += writeDuringKills(t, c, links, "kill", atOnce)
	unknown += writeDuringPauses(t, c, "pause", atOnce)
	t.Logf("%d of %d writes were answered 504", unknown, 3*atOnce)
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
