package integration

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// The leases of a herd, which a machine that stands still for some seconds lets no member lose, and how often they are
// renewed.
const (
	herdLease = 10 // seconds
	herdEvery = time.Second
)

// herd is instances with short leases that can fall silent and come back. Nobody registers again: a
// renewal that is answered 404 is a failure.
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
		h.workers.Go(func() { h.keep(ctx, m) })
	}
	return h
}

func (h *herd) keep(ctx context.Context, m *member) {
	for wait := herdEvery; pause(ctx, wait); {
		wait = herdEvery
		if m.silent.Load() {
			continue
		}
		node := m.node.Load()
		switch answer := node.Renew(h.app, m.id); answer.Outcome() {
		case Done:
		case NotFound:
			h.fail("a renewal of %s through %s was answered %v", m.id, node.Name, answer)
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

// wake lets everybody renew again.
func (h *herd) wake() {
	for _, m := range h.members {
		m.silent.Store(false)
	}
}

// stop ends all renewals for good.
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

// check reports members that were told that they are gone.
func (h *herd) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, failure := range h.failures {
		t.Error(failure)
	}
}

// mustListExactly expects a node to list these instances and no other.
func mustListExactly(t *testing.T, n *Node, ids []string) {
	t.Helper()
	expect.Slice(t, listedIDs(t, n), ids, "node %s lists", n.Name)
}

// listedIDs are the sorted ids of all that a node lists.
func listedIDs(t *testing.T, n *Node) []string {
	t.Helper()
	var ids []string
	for id := range mustList(t, n) {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
