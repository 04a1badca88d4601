package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// Renewed returns when the last renewal of an instance, or its registration, was acknowledged.
func (i *Instance) Renewed() time.Time { return i.renewed }

// Answer repeats a read at a node until it responds, as long as clients are patient.
func (w *World) Answer(node, path string, headers ...string) Reply {
	w.Helper()
	var r Reply
	for until := time.Now().Add(patient); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if r = w.Call(node, "GET", path, "", headers...); r.Status != 0 && r.Status < 500 {
			return r
		}
	}
	w.Fatalf("%s does not answer %s: %v", node, path, r)
	return r
}

// List returns what a node lists: instances by id.
func (w *World) List(node string) map[string]Listed {
	w.Helper()
	return need.Got(ListOf(w.Answer(node, "/eureka/apps")))(w)
}

// ListedIDs returns the ids of what a node lists, in order.
func (w *World) ListedIDs(node string) []string {
	w.Helper()
	return slices.Sorted(maps.Keys(w.List(node)))
}

// job runs workers until it is stopped, or the scenario ends.
type job struct {
	ended   chan struct{}
	workers sync.WaitGroup
	stop    func()
}

func (w *World) newJob() *job {
	j := &job{ended: make(chan struct{})}
	j.stop = sync.OnceFunc(func() {
		close(j.ended)
		j.workers.Wait()
	})
	w.ends = append(w.ends, j.stop)
	return j
}

// pause waits, and reports whether the job goes on.
func (j *job) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-j.ended:
		return false
	}
}

// retryAfter is the pause of a client whose call failed.
const retryAfter = 200 * time.Millisecond

// Herd is a set of instances of one application that can fall silent and come back. Nobody registers them again, so a
// renewal must never get 404.
type Herd struct {
	App string

	w       *World
	job     *job
	members []*member

	mu   sync.Mutex
	lost []string // renewals that got 404
}

// member is one instance of a herd.
type member struct {
	id     string
	at     atomic.Pointer[[]string] // the nodes where it renews: it moves to the next one after each failure
	silent atomic.Bool
}

// Herd registers instances, and renews them until the scenario ends. Each stays with one of the nodes while that
// responds.
func (w *World) Herd(app string, size int, lease, every time.Duration, nodes ...string) *Herd {
	w.Helper()
	h := &Herd{App: app, w: w, job: w.newJob()}
	for i := range size {
		h.members = append(h.members, &member{id: fmt.Sprintf("member-%02d", i)})
	}
	h.Use(nodes...)
	for i, m := range h.members {
		r := w.Call(nodes[i%len(nodes)], "POST", "/eureka/apps/"+app, Registration(app, m.id, lease, nil))
		need.That(w, r.Status == http.StatusNoContent, "register %s: %v", m.id, r)
		h.job.workers.Go(func() { h.keep(m, every) })
	}
	return h
}

// keep renews a member.
func (h *Herd) keep(m *member, every time.Duration) {
	for turn, wait := 0, every; h.job.pause(wait); {
		wait = every
		if m.silent.Load() {
			continue
		}
		nodes := *m.at.Load()
		node := nodes[turn%len(nodes)]
		switch r := h.w.Call(node, "PUT", "/eureka/apps/"+h.App+"/"+m.id, ""); r.Outcome() {
		case Done:
		case NotFound:
			h.lose("a renewal of %s at %s is answered %v", m.id, node, r)
			return
		default:
			turn, wait = turn+1, retryAfter
		}
	}
}

func (h *Herd) lose(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = append(h.lost, fmt.Sprintf(format, args...))
}

// Use spreads the members over nodes.
func (h *Herd) Use(nodes ...string) {
	for i, m := range h.members {
		first := i % len(nodes)
		at := slices.Concat(nodes[first:], nodes[:first])
		m.at.Store(&at)
	}
}

// Silence stops the renewals of the first members, and returns their ids.
func (h *Herd) Silence(members int) []string {
	for _, m := range h.members[:members] {
		m.silent.Store(true)
	}
	return h.IDs()[:members]
}

// Wake makes all members renew again.
func (h *Herd) Wake() {
	for _, m := range h.members {
		m.silent.Store(false)
	}
}

// IDs returns the ids of the members, in order.
func (h *Herd) IDs() (ids []string) {
	for _, m := range h.members {
		ids = append(ids, m.id)
	}
	return ids
}

// NeverLost checks that no renewal got 404.
func (h *Herd) NeverLost() {
	h.w.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.lost) > 0 {
		h.w.Errorf("%d members were lost, first: %s", len(h.lost), h.lost[0])
	}
}

// Churn is a set of clients of a cluster with consensus that register new instances all the time, each call at any
// node, and cancel every second one at once. It records what must be listed in the end.
type Churn struct {
	w     *World
	job   *job
	nodes atomic.Pointer[[]string]

	mu       sync.Mutex
	fates    map[string]bool // by id of what was acknowledged: whether it must be listed
	outcomes [4]int
	findings []string
	done     time.Time     // of the newest acknowledgement
	gap      time.Duration // longest time without one
}

// Churn starts clients. Each makes a call in every period.
func (w *World) Churn(clients int, period time.Duration, nodes ...string) *Churn {
	c := &Churn{w: w, job: w.newJob(), fates: map[string]bool{}, done: time.Now()}
	c.Use(nodes...)
	for i := range clients {
		c.job.workers.Go(func() { c.run(fmt.Sprintf("churn-%d", i), period) })
	}
	return c
}

// Use sends the next calls to other nodes.
func (c *Churn) Use(nodes ...string) { c.nodes.Store(&nodes) }

func (c *Churn) run(name string, period time.Duration) {
	for n := 0; c.job.pause(period); n++ {
		id := fmt.Sprintf("%s-%d", name, n)
		if c.call("POST", "/eureka/apps/CHURN", Registration("CHURN", id, 24*time.Hour, nil)) != Done {
			continue
		}
		c.setFate(id, true)
		if n%2 == 1 && c.job.pause(period) {
			c.cancel(id)
		}
	}
}

// cancel cancels an instance that was acknowledged, until it is known, or cannot be known, whether that was done.
func (c *Churn) cancel(id string) {
	for {
		switch outcome := c.call("DELETE", "/eureka/apps/CHURN/"+id, ""); outcome {
		case Done:
			c.setFate(id, false)
			return
		case Refused:
			if !c.job.pause(retryAfter) {
				return
			}
		default:
			c.mu.Lock()
			defer c.mu.Unlock()
			if outcome == NotFound {
				c.findings = append(c.findings, id+" was acknowledged, and its first cancel finds nothing")
			}
			delete(c.fates, id)
			return
		}
	}
}

func (c *Churn) call(method, path, body string) Outcome {
	nodes := *c.nodes.Load()
	outcome := c.w.Call(nodes[rand.IntN(len(nodes))], method, path, body).Outcome()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcomes[outcome]++
	if outcome == Done {
		now := time.Now()
		c.gap, c.done = max(c.gap, now.Sub(c.done)), now
	}
	return outcome
}

func (c *Churn) setFate(id string, listed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fates[id] = listed
}

// Count returns how many calls had an outcome.
func (c *Churn) Count(o Outcome) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outcomes[o]
}

// Gap returns the longest time without an acknowledgement since it was last called.
func (c *Churn) Gap() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	gap := c.gap
	c.gap, c.done = 0, time.Now()
	return gap
}

// NothingLost ends the clients, and checks that every node lists what was acknowledged and not canceled, and nothing
// that was.
func (c *Churn) NothingLost() {
	c.w.Helper()
	c.job.stop()
	for _, finding := range c.findings {
		c.w.Error(finding)
	}
	for _, node := range c.w.Names() {
		list := c.w.List(node)
		for id, want := range c.fates {
			if _, got := list[id]; got != want {
				c.w.Errorf("%s: %s is listed %v, want %v", node, id, got, want)
			}
		}
	}
	done, refused, unknown := c.outcomes[Done], c.outcomes[Refused], c.outcomes[Unknown]
	c.w.Logf("%d instances acknowledged; calls: %d done, %d refused, %d unknown", len(c.fates), done, refused, unknown)
}
