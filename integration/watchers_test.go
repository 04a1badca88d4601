package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// sloth is a watcher that takes nothing from its connection until it wakes.
type sloth struct {
	node *Node
	conn net.Conn
}

// newSloth watches everything, with socket buffers as small as the system allows.
func newSloth(t *testing.T, n *Node) *sloth {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		ctrlErr := raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		if ctrlErr != nil {
			return ctrlErr
		}
		return err
	}}
	conn := need.Got(dialer.DialContext(t.Context(), "tcp", n.HTTP))(t)
	t.Cleanup(func() { conn.Close() })
	need.Got(fmt.Fprintf(conn, "GET /v1/rollcall/watch HTTP/1.1\r\nHost: %s\r\n\r\n", n.HTTP))(t)
	return &sloth{n, conn}
}

// wake reads everything that was sent and returns the events.
func (s *sloth) wake() (events []Event, err error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(ReadyLimit)); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(s.conn), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	err = readEvents(resp.Body, func(e Event) { events = append(events, e) })
	return events, err
}

// TestWatchersThatAreSlowAreSentAwayAndDelayNoOther has a thousand watchers on three nodes, of which a hundred
// do not read; without consensus fewer on one node. Megabytes that only these asked for make the nodes
// wait for them. Half of them wake in time to read that they must fetch everything, the others are cut off.
func TestWatchersThatAreSlowAreSentAwayAndDelayNoOther(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		if ap {
			testSlowWatchers(t, Config{AP: true, Nodes: 1}, 300, 30)
			return
		}
		testSlowWatchers(t, Config{}, 1000, 100)
	})
}

func testSlowWatchers(t *testing.T, cfg Config, all, slow int) {
	const (
		slowAfter  = 5 * time.Second // when a node treats a reader as slow
		cutAfter   = 30 * time.Second
		bulks      = 120
		bulk       = 60 << 10 // bytes; together more than a socket's buffers take
		changes    = 5
		eachWithin = cutAfter - slowAfter // none of the slow ones is cut off by then
	)
	c := StartCluster(t, cfg)
	var sloths []*sloth
	for i := range slow {
		sloths = append(sloths, newSloth(t, c.Nodes[i%len(c.Nodes)]))
	}
	var streams []*Stream
	for i := range all - slow {
		streams = append(streams, c.Nodes[i%len(c.Nodes)].Watch(t, "app=watched"))
	}
	awaitMetric(t, c, "rollcall_http_watchers", all)
	text, begun := strings.Repeat("x", bulk), time.Now()
	for i := range bulks {
		mustRegister(t, c.Nodes[i%len(c.Nodes)], Instance{App: "BULKY", ID: fmt.Sprintf("bulky-%d", i), Metadata: map[string]string{"text": text}})
	}
	stuck := time.Now()

	for i := range changes {
		began := time.Now()
		mustRegister(t, c.Nodes[i%len(c.Nodes)], Instance{App: "WATCHED", ID: fmt.Sprintf("watched-%d", i)})
		for _, s := range streams {
			Eventually(t, eachWithin, "the change reaches a watcher of "+s.node, func() error { return notYet(len(s.Changes(t)), i+1) })
		}
		t.Logf("change %d reached %d watchers within %v", i, len(streams), time.Since(began))
	}

	Pass(t, max(0, time.Until(stuck.Add(2*slowAfter))))
	for _, s := range sloths[:slow/2] {
		events, err := s.wake()
		late := time.Since(begun) >= cutAfter // a busy machine: it was cut off before it woke
		expect.That(t, late || (err == io.EOF && len(events) != 0 && events[len(events)-1].Name == "reset"),
			"a watcher of %s that woke up was sent %d events and then %v, want a reset as the last one and the end", s.node.Name, len(events), err)
	}
	awaitMetric(t, c, `rollcall_http_watchers`, all-slow)
	t.Logf("all slow watchers were sent away after %v", time.Since(stuck))
}

// awaitMetric waits until a metric adds up to a number over all nodes.
func awaitMetric(t *testing.T, c *Cluster, name string, want int) {
	t.Helper()
	Eventually(t, 5*time.Minute, fmt.Sprintf("%s is %d", name, want), func() error {
		sum := 0
		for _, n := range c.Nodes {
			sum += metric(t, n, name)
		}
		return unless(sum == want, "it is %d", sum)
	})
}

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
