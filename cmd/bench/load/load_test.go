package load

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// A server that closes a connection with unread bytes waits for half a second first.
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
	need.Equal(t, rest.Buffered(), 0, "bytes too many in %q:", request)
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
	for document, want := range map[string]int64{ // -1 if it has none
		`{"instance":{"metadata":{"n":"7"},"x":"y"}}`:                          7,
		`{"instance":{"metadata":{"@class":"c","zone":"a","n":"1234567890"}}}`: 1234567890,
		"{\"metadata\" : {\n \"n\" : \"8\"\n}}":                                8,
		`{"instance":{"n":"7","metadata":{"zone":"a"}}}`:                       -1,
		`{"instance":{"metadata":{"n":"x"}}}`:                                  -1,
		"":                                                                     -1,
	} {
		got, ok := seenVersion([]byte(document))
		expect.That(t, ok == (want >= 0) && (!ok || got == want), "version %d (%t) in %s, want %d", got, ok, document, want)
	}
}

func TestCancelAllCancelsEverythingWhereItWasRegisteredOrSaysHowManyStay(t *testing.T) {
	c := newFakeCluster(t, 3)
	l := newLoad(t, Config{Nodes: c.addrs(), Timeout: 10 * time.Second, Load: scenario.Load{
		Instances: 10, Heartbeat: scenario.Span(time.Second), Registers: 50, Writes: 50, OwnKeys: 3, SharedKeys: 2,
	}})
	need.OK(t, l.Register(t.Context()))
	run(t, l, 200*time.Millisecond)
	l.Stop()
	need.That(t, len(l.fleet.passing) != 0, "no instance came that would have gone later")
	c.decide(func(s seen) int { return map[string]int{l.fleet.lasting[7].id: http.StatusServiceUnavailable}[s.id] })
	err := l.CancelAll(t.Context())
	expect.That(t, err != nil && strings.HasPrefix(err.Error(), "1 of ") && c.registered() == 1,
		"%d are still registered, %v, want one and an error", c.registered(), err)
	c.decide(nil)
	before := len(c.requests(http.MethodDelete, ""))
	err = l.CancelAll(t.Context())
	expect.That(t, err == nil && c.registered() == 0, "%d are still registered, %v, want none", c.registered(), err)
	for _, s := range c.requests(http.MethodDelete, "")[before:] {
		if !strings.HasPrefix(s.id, "own-") && !strings.HasPrefix(s.id, "shared-") { // those are canceled everywhere
			node := c.requests(http.MethodPost, s.id)[0].node
			expect.That(t, s.node == node, "%s was registered at node %d and canceled at %d", s.id, node, s.node)
		}
	}
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
		w := watcher{load: new(Load)}
		w.follow(api.NewEventReader(strings.NewReader(tc.stream), watchFetch))
		got := w.load.Watched()
		expect.That(t, got.Events == tc.events && got.Resets == tc.resets && string(w.last) == tc.last,
			"%s: %+v and id %q, want %d events, %d resets and %q", tc.name, got, w.last, tc.events, tc.resets, tc.last)
	}
}

// watchedNode is a node that streams one change per watch, breaks off the first streams, and keeps the others. It sends
// the queries of the watches.
func watchedNode(t *testing.T, breaks int) (addr string, queries chan string) {
	queries = make(chan string, 100)
	return addrOf(standIn(t, func(w http.ResponseWriter, r *http.Request) {
		queries <- r.URL.RawQuery
		number := len(queries)
		fmt.Fprintf(w, "event: change\nid: a-%d\ndata: {}\n\n", number)
		w.(http.Flusher).Flush()
		if number > breaks {
			<-r.Context().Done()
		}
	})), queries
}

// watching runs a load's watchers until the test ends, and waits until they have seen what is wanted.
func watching(t *testing.T, nodes []string, count int, what string, wanted func(Watched) bool) Watched {
	t.Helper()
	l := &Load{Config: Config{Nodes: nodes, Load: scenario.Load{Watchers: count}, Reach: new(Reach), Timeout: 10 * time.Second}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.watch(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	for deadline := time.Now().Add(30 * time.Second); !wanted(l.Watched()); {
		need.That(t, !time.Now().After(deadline), "%s: not within 30 s; they saw %+v", what, l.Watched())
		wait.For(ctx, 10*time.Millisecond)
	}
	return l.Watched()
}

func TestWatcherGoesOnAfterABreakFromTheLastEvent(t *testing.T) {
	addr, queries := watchedNode(t, 1)
	got := watching(t, []string{addr}, 1, "the second stream's change", func(w Watched) bool { return w.Events == 2 })
	expect.That(t, got.Breaks == 1 && got.Open == 1 && got.Bytes != 0, "they saw %+v, want a break, an open stream and its bytes", got)
	first, second := <-queries, <-queries
	expect.That(t, first == "" && second == "index=a-1", "asked for %q and %q, want everything from now on, then what came after a-1", first, second)
}

func TestWatchersAreSpreadOverTheNodesAndLeaveThoseThatDoNotRespond(t *testing.T) {
	a, atFirst := watchedNode(t, 0)
	b, atThird := watchedNode(t, 0)
	nodes := []string{a, statusServer(t, http.StatusServiceUnavailable), b}
	got := watching(t, nodes, 6, "the change of every watcher", func(w Watched) bool { return w.Events == 6 })
	expect.That(t, got.Breaks == 2 && got.Open == 6, "they saw %+v, want 6 open streams and a break for each whose home refuses", got)
	expect.That(t, len(atFirst) == 2 && len(atThird) == 4, "%d watch the first node and %d the third, want 2 and 4", len(atFirst), len(atThird))
}

// send makes calls of a stream, one after the other.
func send(t *testing.T, streams []*stream, name string, calls int) {
	t.Helper()
	n := slices.IndexFunc(streams, func(s *stream) bool { return s.name == name })
	for range calls {
		streams[n].next()(t.Context(), time.Now())
	}
}

// callsOn returns the history's effective calls on a key (all keys if empty).
func callsOn(l *Load, key string, actions ...trial.Action) []trial.Call {
	return slices.DeleteFunc(l.History.Calls(time.Now()), func(c trial.Call) bool {
		return key != "" && c.Key != key || !slices.Contains(actions, c.Action)
	})
}

func TestOwnKeyHasOneWriterThatRegistersAndCancelsAtItsHome(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{OwnKeys: 2})
	send(t, l.keyStreams(), "writes", 100)
	for n, id := range []string{"own-0", "own-1"} {
		calls := callsOn(l, id, trial.Write, trial.Remove)
		need.That(t, len(calls) == 51, "%s: %d writes, want the registration and 50", id, len(calls))
		cancels := 0
		for i, call := range calls {
			expect.That(t, call.Version == int64(i+1) && call.Node == n && call.Client == calls[0].Client && call.Outcome == trial.Done,
				"%s: write %d is %+v, want version %d done at node %d by client %d", id, i, call, i+1, n, calls[0].Client)
			if call.Action == trial.Remove {
				cancels++
				expect.That(t, calls[i-1].Action != trial.Remove, "%s: write %d is a second cancel", id, i)
			}
		}
		expect.That(t, cancels >= 3 && cancels <= 20, "%s: %d of 50 writes are cancels, want about 10", id, cancels)
		last := calls[len(calls)-1]
		if want := last.Action == trial.Write; l.Book.Alive(id) != want || c.version(id) > 0 != want {
			t.Errorf("%s: alive %t by the book, in version %d at the servers, after %+v", id, l.Book.Alive(id), c.version(id), last)
		}
	}
}

func TestKeyReadsSeeVersionsAndAbsence(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{OwnKeys: 2})
	send(t, l.keyStreams(), "writes", 30)
	c.remove("own-1")
	send(t, l.keyStreams(), "reads", 40)
	looks := callsOn(l, "", trial.Look)
	need.That(t, len(looks) == 40, "%d looks, want 40", len(looks))
	perKey := map[string]int{}
	for i, call := range looks {
		perKey[call.Key]++
		want := c.version(call.Key)
		outcome := trial.Done
		if want == 0 {
			outcome = trial.NotFound
		}
		expect.That(t, call.Version == want && call.Outcome == outcome && call.Node == i%2, "%+v, want version %d (%s) at node %d", call, want, outcome, i%2)
	}
	expect.That(t, len(perKey) == 2, "keys that were read: %v, want both", perKey)
}

func TestKeyWriterGoesOnAfterWritesThatFailed(t *testing.T) {
	for _, tc := range []struct {
		status  int
		outcome trial.Outcome
	}{{http.StatusServiceUnavailable, trial.Refused}, {http.StatusGatewayTimeout, trial.Unknown}} {
		c := newFakeCluster(t, 2)
		l := registered(t, c, scenario.Load{OwnKeys: 2})
		c.decide(func(seen) int { return tc.status })
		send(t, l.keyStreams(), "writes", 2)
		send(t, l.keyStreams(), "reads", 2)
		expect.That(t, tc.outcome == trial.Unknown || l.Book.Expected() == 2, "the book expects %d instances", l.Book.Expected())
		c.decide(nil)
		send(t, l.keyStreams(), "writes", 2)
		writes := len(c.requests(http.MethodPost, "")) + len(c.requests(http.MethodDelete, ""))
		calls := callsOn(l, "", trial.Write, trial.Remove, trial.Look)
		need.That(t, writes == 6 && len(calls) == 8, "%s: no other node is asked: %d writes, calls %+v", tc.outcome, writes, calls)
		for n, call := range calls[2:6] {
			never := call.Returned == math.MaxInt64
			expect.That(t, call.Outcome == tc.outcome && never == (tc.outcome == trial.Unknown) && call.Version == []int64{2, 2, 0, 0}[n],
				"call %d is %+v, want one that is %s", n, call, tc.outcome)
		}
		for _, call := range calls[6:] {
			expect.That(t, call.Outcome == trial.Done && call.Version == 3, "the last write is %+v, want version 3 done", call)
		}
	}
}

func TestKeyWriterCallsAnotherNodeOnlyForAnOwnKey(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{OwnKeys: 1, SharedKeys: 1})
	c.nodes[0].Close()
	for _, w := range []*writer{l.keys.keys[0].writers[0], l.keys.keys[1].writers[0]} {
		w.hangUp(0) // what is sent on a just closed connection has an unknown outcome
		w.write(t.Context(), trial.Write, time.Now())
	}
	type try struct {
		node    int
		version int64
		outcome trial.Outcome
	}
	for key, want := range map[string][]try{
		"own-0":    {{0, 1, trial.Done}, {0, 2, trial.Unreached}, {1, 2, trial.Done}},
		"shared-0": {{1, 1, trial.Done}, {0, 2, trial.Unreached}},
	} {
		var got []try
		for _, call := range callsOn(l, key, trial.Write) {
			got = append(got, try{call.Node, call.Version, call.Outcome})
		}
		expect.Slice(t, got, want, "%s: tries", key)
	}
	expect.Equal(t, c.version("own-0"), 2, "own-0 is registered in version")
}

// awaited waits for a write to a node in the background, and returns once the wait has begun.
func awaited(ctx context.Context, t *testing.T, l *Load, node int) <-chan int {
	t.Helper()
	found := make(chan int, 1)
	go func() { found <- l.AwaitWrite(ctx, node) }()
	eventually(t, "the wait for a write", func() bool {
		l.flight.mu.Lock()
		defer l.flight.mu.Unlock()
		return l.flight.aimed[node] != nil
	})
	return found
}

func TestAwaitWriteEndsWhenTheNextWriteBeginsAndCountsThoseUnderWay(t *testing.T) {
	l := need.Got(New(Config{Nodes: []string{"a:1", "b:1"}}))(t)
	before := l.flight.begin(0)
	found := awaited(t.Context(), t, l, 0)
	l.flight.begin(1)() // goes elsewhere
	need.That(t, len(found) == 0, "a write that had begun, or goes to another node, ended the wait")
	landed := l.flight.begin(0)
	expect.Equal(t, <-found, 2, "writes under way:")
	before()
	landed()
	found = awaited(t.Context(), t, l, 0)
	l.flight.begin(0)()
	expect.Equal(t, <-found, 1, "writes under way when the others have landed:")
	l.flight.begin(0)() // nobody waits
	ctx, cancel := context.WithCancel(t.Context())
	found = awaited(ctx, t, l, 0)
	cancel()
	expect.Equal(t, <-found, 0, "writes under way when the wait is given up:")
	l.flight.begin(0)() // it waits for nobody
}

func TestPaceCountsLateCallsSinceItWasLastAskedFor(t *testing.T) {
	l := need.Got(New(Config{Nodes: []string{"a:1"}}))(t)
	now, long := time.Now(), time.Now().Add(-time.Minute)
	for _, due := range []time.Time{now, now.Add(-trial.LateAfter), now.Add(-80 * time.Millisecond), now.Add(time.Second)} {
		l.pace.add(due, long)
	}
	l.pace.add(long, now)         // it waited for its client
	l.pace.add(time.Time{}, long) // of a script
	due, late, worst := l.Pace()
	expect.That(t, due == 5 && late == 2 && worst >= 80*time.Millisecond && worst < time.Minute, "%d due, %d late, the worst by %s; want 5, 2, 80ms", due, late, worst)
	due, late, worst = l.Pace()
	expect.That(t, due == 0 && late == 0 && worst == 0, "then %d due, %d late, the worst by %s; want none", due, late, worst)
}

func TestBurstIsAllWritersOfAKeyAtOnceAndALookAtEachNode(t *testing.T) {
	const writers = 7
	var armed atomic.Bool
	var posts atomic.Int64
	together := make(chan struct{})
	var mu sync.Mutex
	looks := make(map[int]int) // by node
	node := func(number int) string {
		return addrOf(standIn(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !armed.Load():
			case r.Method == http.MethodGet:
				mu.Lock()
				looks[number]++
				mu.Unlock()
				w.WriteHeader(http.StatusNotFound)
				return
			case posts.Add(1) == writers:
				close(together)
			default: // no write is answered before all have come
				select {
				case <-together:
				case <-r.Context().Done():
				}
			}
			w.WriteHeader(http.StatusNoContent)
		}))
	}
	l := newLoad(t, Config{
		Nodes: []string{node(0), node(1), node(2)}, Load: scenario.Load{SharedKeys: 2, KeyWriters: writers, Writes: 70, Reads: 5}, History: new(History),
	})
	need.OK(t, l.Register(t.Context()))
	streams := l.keyStreams()
	s := streams[0]
	expect.Equal(t, l.rate(s), 10, "bursts per second:")
	l.SetRates(map[string]float64{"writes": 140})
	expect.Equal(t, l.rate(s), 20, "bursts per second of a storm:")

	armed.Store(true)
	s.next() // of the first key
	s.next()(t.Context(), time.Now())
	versions, nodes := make(map[int64]bool), make(map[int]int)
	for _, call := range callsOn(l, "shared-1", trial.Write) {
		if call.Version > 1 {
			versions[call.Version] = true
			nodes[call.Node]++
			expect.Equal(t, call.Outcome, trial.Done, "version %d:", call.Version)
		}
	}
	expect.That(t, len(versions) == writers && nodes[0] == 3 && nodes[1] == 2 && nodes[2] == 2, "versions %v were written at nodes %v, want %d, spread over the nodes", versions, nodes, writers)
	expect.That(t, looks[0] == 1 && looks[1] == 1 && looks[2] == 1, "looks at nodes: %v, want one at each", looks)
	expect.Equal(t, len(callsOn(l, "shared-1", trial.Look)), 3, "looks in the history:")
	expect.Equal(t, len(callsOn(l, "shared-0", trial.Write, trial.Look)), 1, "calls on the other key, beside its registration:")
}

// sealEach registers sealed instances through each of two nodes in turn, so that numbers 0 and 1 are left alone, 2 and
// 3 registered again, 4 and 5 canceled, and so on; and waits until they are written again.
func sealEach(t *testing.T, l *Load, count int) {
	t.Helper()
	send(t, l.streams(), "sealed", count)
	l.fleet.sealing.Wait()
}

func TestSealedInstancesAreWrittenOnceOrTwiceAndNeverAgain(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Sealed: 40})
	began := time.Now()
	run(t, l, 200*time.Millisecond)
	app, all := l.Sealed(began)
	expect.That(t, calls(l, trial.Register) == 10 && calls(l, trial.Cancel) == 2, "%d registrations and %d cancels are counted, want 10 and 2", calls(l, trial.Register), calls(l, trial.Cancel))
	need.That(t, app == "TEST-SEALED" && len(all) == 8, "%d sealed instances of %s, want 8 of TEST-SEALED", len(all), app)
	for n, want := range []struct {
		version int64 // 0 if it is not registered
		second  string
	}{{1, ""}, {1, ""}, {2, http.MethodPost}, {2, http.MethodPost}, {0, http.MethodDelete}, {0, http.MethodDelete}, {1, ""}, {1, ""}} {
		s := all[n]
		expect.Equal(t, c.version(s.ID), want.version, "%s is registered in version", s.ID)
		posts, cancels := c.requests(http.MethodPost, s.ID), c.requests(http.MethodDelete, s.ID)
		expect.That(t, len(c.requests(http.MethodPut, s.ID)) == 0, "%s was renewed", s.ID)
		expect.That(t, len(posts)+len(cancels) == len(s.Writes), "%s: %d registrations and %d cancels came, %d were recorded", s.ID, len(posts), len(cancels), len(s.Writes))
		expect.That(t, (len(s.Writes) == 2) == (want.second != "") && (len(cancels) == 1) == (want.second == http.MethodDelete),
			"%s was written %d times, canceled %d times, want %q after its registration", s.ID, len(s.Writes), len(cancels), want.second)
		for i, w := range s.Writes {
			expect.That(t, w.Outcome == trial.Done && !w.Doubtful && w.Node == n%2 && w.Called <= w.Returned && w.Cancel == (i == 1 && len(cancels) == 1),
				"%s: write %d is %+v, want one done at node %d", s.ID, i, w, n%2)
		}
		if len(s.Writes) == 2 {
			pause := s.Writes[1].Called - s.Writes[0].Returned
			expect.That(t, pause >= trial.Of(sealPause), "%s was written again after %s, want %s", s.ID, pause.Duration(), sealPause)
		}
	}
}

func TestSealedInstanceKeepsTheOutcomesOfItsWrites(t *testing.T) {
	for _, tc := range []struct {
		id     int // says what is written: nothing else, another version, or a cancel; its home is id % 2
		write  int // that fails; 0 for the first
		status int
		node   int // that fails; -1 for both
		want   trial.SealWrite
	}{
		{id: 2, status: 400, node: -1, want: trial.SealWrite{Outcome: trial.Refused, Node: 1}},
		{id: 3, status: 504, node: -1, want: trial.SealWrite{Outcome: trial.Unknown, Doubtful: true, Node: 0}},
		{id: 4, status: 503, node: -1, want: trial.SealWrite{Outcome: trial.Refused, Node: 1}},
		{id: 2, write: 1, status: 504, node: -1, want: trial.SealWrite{Outcome: trial.Unknown, Doubtful: true, Node: 1}},
		{id: 3, write: 1, status: 403, node: -1, want: trial.SealWrite{Outcome: trial.Refused, Node: 0}},
		{id: 4, write: 1, status: 504, node: -1, want: trial.SealWrite{Cancel: true, Outcome: trial.Unknown, Doubtful: true, Node: 1}},
		{id: 5, write: 1, status: 504, node: 1, want: trial.SealWrite{Cancel: true, Outcome: trial.Done, Doubtful: true, Node: 0}},
	} {
		t.Run(fmt.Sprintf("%d in write %d of sealed-%d", tc.status, tc.write, tc.id), func(t *testing.T) {
			t.Parallel() // each waits for the second write
			c := newFakeCluster(t, 2)
			l := newTestLoad(t, c, scenario.Load{Sealed: 1})
			c.decide(func(s seen) int {
				second := s.version == 2 || s.method == http.MethodDelete
				if s.id == fmt.Sprintf("sealed-%d", tc.id) && second == (tc.write == 1) && (tc.node < 0 || s.node == tc.node) {
					return tc.status
				}
				return 0
			})
			sealEach(t, l, 6)
			_, all := l.Sealed(time.Now())
			writes := all[tc.id].Writes
			need.That(t, len(writes) == tc.write+1, "it was written %d times: %+v", len(writes), writes)
			got := writes[tc.write]
			expect.Equal(t, got.Returned == math.MaxInt64, tc.want.Outcome == trial.Unknown, "it never got an answer:")
			got.Called, got.Returned = 0, 0
			expect.Equal(t, got, tc.want, "the write is")
		})
	}
}
