package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// metric reads a whole number from a node's metrics; name is written with its labels.
func metric(t *testing.T, n *Node, name string) int {
	t.Helper()
	response := n.Get("/metrics")
	for line := range strings.Lines(string(response.Body)) {
		value, ok := strings.CutPrefix(line, name+" ")
		if !ok {
			continue
		}
		var number float64
		need.OKf(t, expect.Err(fmt.Sscan(value, &number)), "node %s: %q", n.Name, line)
		return int(number)
	}
	t.Fatalf("node %s has no metric %s: %d", n.Name, name, response.Status)
	return 0
}

// The leases of a herd, which a machine that stands still for some seconds lets no member lose, and how often they are
// renewed.
const (
	herdLease = 10 // seconds
	herdEvery = time.Second
)

// herd is instances with short leases that can fall silent and come back. No member registers again: a renewal that is
// answered 404 is a failure.
type herd struct {
	app     string
	members []*member
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu       sync.Mutex
	failures []string
}

// member is one instance of a herd, with a node that it renews through.
type member struct {
	id     string
	node   atomic.Pointer[Node]
	silent atomic.Bool
}

// startHerd registers instances, spread over the nodes, and renews them until the test ends.
func startHerd(t *testing.T, app string, size int, nodes []*Node) *herd {
	t.Helper()
	return startHerdOf(t, app, size, herdLease, nodes)
}

// startHerdOf is startHerd with leases of so many seconds.
func startHerdOf(t *testing.T, app string, size, lease int, nodes []*Node) *herd {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h := &herd{app: app, cancel: cancel}
	t.Cleanup(h.stop)
	for i := range size {
		m := &member{id: fmt.Sprintf("member-%02d", i)}
		m.node.Store(nodes[i%len(nodes)])
		mustRegister(t, m.node.Load(), Instance{App: app, ID: m.id, Duration: lease})
		h.members = append(h.members, m)
		h.workers.Go(func() { h.keepRegistered(ctx, m) })
	}
	return h
}

func (h *herd) keepRegistered(ctx context.Context, m *member) {
	for wait := herdEvery; pause(ctx, wait); {
		wait = herdEvery
		if m.silent.Load() {
			continue
		}
		node := m.node.Load()
		switch response := node.Renew(h.app, m.id); response.Outcome() {
		case Done:
		case NotFound:
			h.fail("a renewal of %s through %s was answered %v", m.id, node.Name, response)
			return
		default:
			wait = retryAfter
		}
	}
}

func (h *herd) fail(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures = append(h.failures, fmt.Sprintf(format, args...))
}

// silence stops the renewals of the first members and returns their ids.
func (h *herd) silence(members int) []string {
	for _, m := range h.members[:members] {
		m.silent.Store(true)
	}
	return h.ids()[:members]
}

// use spreads the members over other nodes.
func (h *herd) use(nodes []*Node) {
	for i, m := range h.members {
		m.node.Store(nodes[i%len(nodes)])
	}
}

// wake lets all members renew again.
func (h *herd) wake() {
	for _, m := range h.members {
		m.silent.Store(false)
	}
}

// stop ends all renewals.
func (h *herd) stop() {
	h.cancel()
	h.workers.Wait()
}

// ids are the names of all members, in order.
func (h *herd) ids() []string {
	var ids []string
	for _, m := range h.members {
		ids = append(ids, m.id)
	}
	return ids
}

// check reports members whose renewal was answered 404.
func (h *herd) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, failure := range h.failures {
		t.Error(failure)
	}
}
