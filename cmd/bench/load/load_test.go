package load

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/client/sse"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// A server that closes a connection on what it has not read waits for half a second before, by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

var anInstance = described{
	app: "LOAD-003", id: "LOAD-003-000025.cluster.example.internal:8080", number: 37, interval: 2, duration: 7,
}

// parse reads a preformatted request as a server does.
func parse(t *testing.T, request []byte) (r *http.Request, body []byte) {
	t.Helper()
	rest := bufio.NewReader(bytes.NewReader(request))
	r, err := http.ReadRequest(rest)
	need.That(t, err == nil, "%v in %q", err, request)
	body, err = io.ReadAll(r.Body)
	need.OK(t, err)
	n := rest.Buffered()
	need.That(t, n == 0, "%d bytes too many in %q", n, request)
	return r, body
}

func TestRequestOfARegistrationIsWhatAServerReads(t *testing.T) {
	r, body := parse(t, anInstance.registration(42))
	expect.That(t, r.Method == http.MethodPost && r.URL.Path == "/eureka/apps/LOAD-003", "%s %s, want POST to the application", r.Method, r.URL)
	i := need.Got(eureka.DecodeRegistration(body, eureka.Format{}, anInstance.app))(t)
	expect.That(t, i.ID() == anInstance.id && i.App == anInstance.app && i.Status == registry.Up && i.HostName == "LOAD-003-000025.cluster.example.internal",
		"the server reads instance %+v", i)
	expect.That(t, i.RenewalInterval == 2 && i.Duration == 7,
		"the server reads a lease of %d s renewed every %d s, want 7 s and 2 s", i.Duration, i.RenewalInterval)
	expect.Equal(t, i.LastDirty, DirtyBase+42, "lastDirtyTimestamp")
	l := &registry.Lease{Instance: i}
	v, ok := seenVersion(eureka.AppendInstanceDocument(nil, eureka.Format{}, l, registry.Stamp{}))
	expect.That(t, ok && v == 42, "version %d (%t) in what the server answers, want 42", v, ok)
	expect.That(t, len(body) >= 950 && len(body) <= 1300, "%d bytes, want about 1 KB: %s", len(body), body)
}

func TestVersionIsReadFromMetadataOnly(t *testing.T) {
	for _, tc := range []struct {
		name, document string
		want           int64
		ok             bool
	}{
		{name: "the only entry", document: `{"instance":{"metadata":{"n":"7"},"x":"y"}}`, want: 7, ok: true},
		{name: "one of several", document: `{"instance":{"metadata":{"@class":"c","zone":"a","n":"123456789012"}}}`, want: 123456789012, ok: true},
		{name: "indented", document: "{\"metadata\" : {\n \"n\" : \"8\"\n}}", want: 8, ok: true},
		{name: "outside of the metadata", document: `{"instance":{"n":"7","metadata":{"zone":"a"}}}`},
		{name: "without a number", document: `{"instance":{"metadata":{"n":"x"}}}`},
		{name: "empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := seenVersion([]byte(tc.document))
			expect.That(t, got == tc.want && ok == tc.ok, "version %d (%t) in %s, want %d (%t)", got, ok, tc.document, tc.want, tc.ok)
		})
	}
}

func loadThatRan(t *testing.T, c *fakeCluster) *Load {
	t.Helper()
	l := newLoad(t, Config{Nodes: c.addrs(), Load: scenario.Load{
		Instances: 10, Heartbeat: scenario.Span(time.Second), Lease: scenario.Span(3 * time.Second),
		Registers: 50, Writes: 50, OwnKeys: 3, SharedKeys: 2,
	}, Timeout: 10 * time.Second})
	need.OK(t, l.Register(t.Context()))
	run(t, l, 200*time.Millisecond)
	l.Stop()
	return l
}

func TestCancelAllCancelsEverythingWhereItWasRegistered(t *testing.T) {
	c := newFakeCluster(t, 3)
	l := loadThatRan(t, c)
	need.That(t, l.fleet.arrivals.Load() != 0, "no instance came that would have gone later")
	err := l.CancelAll(t.Context())
	expect.That(t, err == nil && c.registered() == 0, "%d are still registered, %v, want none", c.registered(), err)
	for _, s := range c.requests(http.MethodDelete, "") {
		if strings.HasPrefix(s.id, "own-") || strings.HasPrefix(s.id, "shared-") {
			continue // they are canceled everywhere
		}
		node := c.requests(http.MethodPost, s.id)[0].node
		expect.That(t, s.node == node, "%s was registered at node %d and canceled at %d", s.id, node, s.node)
	}
}

func TestCancelAllThatFailsSaysHowManyStay(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := loadThatRan(t, c)
	refused := l.fleet.lasting[7].id
	c.decide(func(s seen) int {
		if s.id == refused {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	err := l.CancelAll(t.Context())
	expect.That(t, err != nil && strings.HasPrefix(err.Error(), "1 of ") && c.registered() == 1,
		"%d are still registered, %v, want one and an error", c.registered(), err)
}

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
