package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client/sse"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestWatcherCountsWholeEventsAndKeepsTheirIDs(t *testing.T) {
	const (
		start  = "event: start\nid: a-1\ndata: {}\n\n"
		change = "event: change\nid: a-2\ndata: {}\n\n"
	)
	for _, tc := range []struct {
		name, stream string
		events       int64
		resets       int64
		last         string
	}{
		{name: "nothing"},
		{name: "start", stream: start, last: "a-1"},
		{name: "change", stream: start + change, events: 1, last: "a-2"},
		{name: "longer than the buffer", stream: "event: change\nid: a-7\ndata: " + strings.Repeat("event: change", watchFetch) + "\n\n", events: 1, last: "a-7"},
		{name: "cut off before its end", stream: start + strings.TrimSuffix(change, "\n"), last: "a-1"},
		{name: "sign of life", stream: start + "id: a-5\n: age 0.100\n\n", last: "a-5"},
		{name: "reset", stream: start + "event: reset\nid: b-9\ndata: {}\n\n" + change, events: 1, resets: 1, last: "a-2"},
	} {
		w := watcher{counts: new(watchCounts)}
		w.read(sse.NewReader(strings.NewReader(tc.stream), watchFetch))
		got := w.counts.now()
		expect.That(t, got.Events == tc.events && got.Resets == tc.resets && string(w.last) == tc.last,
			"%s: %+v and id %q, want %d events, %d resets and %q", tc.name, got, w.last, tc.events, tc.resets, tc.last)
	}
}

// watchedNode is a node that streams one change per watch, breaks the first streams off, and keeps the others.
type watchedNode struct {
	*httptest.Server
	mu     sync.Mutex
	breaks int
	asked  []string // queries
}

func newWatchedNode(t *testing.T, breaks int) *watchedNode {
	n := &watchedNode{breaks: breaks}
	n.Server = httptest.NewServer(n)
	t.Cleanup(n.Close)
	return n
}

func (n *watchedNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	n.asked = append(n.asked, r.URL.RawQuery)
	number := len(n.asked)
	n.mu.Unlock()
	fmt.Fprintf(w, "event: change\nid: a-%d\ndata: {}\n\n", number)
	w.(http.Flusher).Flush()
	if number > n.breaks {
		<-r.Context().Done()
	}
}

func (n *watchedNode) addr() string { return n.Listener.Addr().String() }

func (n *watchedNode) queries() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.asked...)
}

// watching runs a load's watchers until the test ends, and waits until what they saw is as wanted.
func watching(t *testing.T, nodes []string, count int, what string, wanted func(Watched) bool) Watched {
	t.Helper()
	l := &Load{Config: Config{Nodes: nodes, Load: scenario.Load{Watchers: count}, Reach: new(Reach), Timeout: 10 * time.Second}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.watch(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	for deadline := time.Now().Add(30 * time.Second); !wanted(l.Watched()); {
		need.That(t, !time.Now().After(deadline), "%s: not within 30 s; they saw %+v", what, l.Watched())
		wire.Pause(ctx, 10*time.Millisecond)
	}
	return l.Watched()
}

func TestWatcherGoesOnAfterABreakFromTheLastEvent(t *testing.T) {
	n := newWatchedNode(t, 1)
	got := watching(t, []string{n.addr()}, 1, "the second stream's change", func(w Watched) bool { return w.Events == 2 })
	expect.That(t, got.Breaks == 1 && got.Open == 1 && got.Bytes != 0, "they saw %+v, want a break, an open stream and its bytes", got)
	asked := n.queries()
	expect.That(t, len(asked) == 2 && asked[0] == "" && asked[1] == "index=a-1",
		"asked for %q, want everything from now on, then what came after a-1", asked)
}

func TestWatchersAreSpreadOverTheNodesAndLeaveThoseThatDoNotRespond(t *testing.T) {
	first, second := newWatchedNode(t, 0), newWatchedNode(t, 0)
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, "event: change\n\n")
	}))
	t.Cleanup(refuses.Close)
	nodes := []string{first.addr(), refuses.Listener.Addr().String(), second.addr()}
	got := watching(t, nodes, 6, "the change of every watcher", func(w Watched) bool { return w.Events == 6 })
	expect.That(t, got.Breaks == 2 && got.Open == 6, "they saw %+v, want 6 open streams and a break for each whose home refuses", got)
	a, b := len(first.queries()), len(second.queries())
	expect.That(t, a == 2 && b == 4, "%d watch the first node and %d the third, want 2 and 4", a, b)
}
