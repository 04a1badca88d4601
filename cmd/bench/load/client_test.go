package load

import (
	"cmp"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func standIn(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

func addrOf(s *httptest.Server) string { return s.Listener.Addr().String() }

func statusServer(t *testing.T, status int) string {
	return addrOf(standIn(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
}

// silentNode is a node that accepts requests and never responds.
func silentNode(t *testing.T) string {
	ended := make(chan struct{})
	s := standIn(t, func(http.ResponseWriter, *http.Request) { <-ended })
	t.Cleanup(func() { close(ended) }) // before the server closes, which waits for its handlers
	return addrOf(s)
}

// breaks is a node that drops the connection when a request arrives.
func breaks(t *testing.T) string {
	return addrOf(standIn(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
}

// refuses is an address where no process listens, nor will.
func refuses(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(need.Got(localcluster.ClaimPorts(1))(t)[0]))
}

func newTestClient(t *testing.T, timeout time.Duration, nodes ...string) *client {
	t.Helper()
	l := need.Got(New(Config{Nodes: nodes, Timeout: timeout}))(t)
	t.Cleanup(l.hangUp)
	return l.newClient(0)
}

var (
	readRequest  = []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	writeRequest = []byte("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
)

func TestCallEndsAsItsTriesDid(t *testing.T) {
	const (
		patient   = time.Minute
		impatient = time.Second // the next node's response must come within this time
	)
	is := func(status int) func(*testing.T) string {
		return func(t *testing.T) string { return statusServer(t, status) }
	}
	type node = func(*testing.T) string
	for _, tc := range []struct {
		name     string
		nodes    []node
		timeout  time.Duration
		write    bool
		pinned   bool
		outcome  trial.Outcome
		status   int
		node     int // called last
		doubtful bool
	}{
		{name: "home answers", nodes: []node{is(200), is(500)}, outcome: trial.Done, status: 200},
		{name: "home answers without a body", nodes: []node{is(204), is(500)}, outcome: trial.Done, status: 204},
		{name: "not registered", nodes: []node{is(404), is(200)}, outcome: trial.NotFound, status: 404},
		{name: "403 from a node that still starts", nodes: []node{is(403), is(200)}, outcome: trial.Done, status: 200, node: 1},
		{name: "503, then 200", nodes: []node{is(503), is(200)}, outcome: trial.Done, status: 200, node: 1},
		{name: "503 everywhere", nodes: []node{is(503), is(503)}, outcome: trial.Refused, status: 503, node: 1},
		{name: "503 from the only one that may be asked", nodes: []node{is(503), is(200)}, pinned: true, outcome: trial.Refused, status: 503},
		{name: "no node there", nodes: []node{refuses, refuses}, outcome: trial.Unreached, node: 1},
		{name: "home not there", nodes: []node{refuses, is(200)}, write: true, outcome: trial.Done, status: 200, node: 1},
		{name: "home not there, and no other node may be called", nodes: []node{refuses, is(200)}, pinned: true, outcome: trial.Unreached},
		{name: "504 everywhere", nodes: []node{is(504), is(504)}, outcome: trial.Unknown, status: 504, node: 1, doubtful: true},
		{name: "504 once", nodes: []node{is(504), is(200)}, pinned: true, outcome: trial.Unknown, status: 504},
		{name: "broken, then 200", nodes: []node{breaks, is(200)}, write: true, outcome: trial.Done, status: 200, node: 1, doubtful: true},
		{name: "no answer in time, then 200", nodes: []node{silentNode, is(200)}, timeout: impatient, outcome: trial.Done, status: 200, node: 1, doubtful: true},
		{name: "no answer in time", nodes: []node{silentNode}, timeout: impatient, outcome: trial.Unknown},
		{name: "a write that may have happened is not refused", nodes: []node{breaks, is(503)}, write: true, outcome: trial.Unknown, status: 503, node: 1, doubtful: true},
		{name: "a write that may have happened is not unreached", nodes: []node{breaks, refuses}, write: true, outcome: trial.Unknown, node: 1, doubtful: true},
		{name: "a read has no effect that could be in doubt", nodes: []node{breaks, is(503)}, outcome: trial.Refused, status: 503, node: 1, doubtful: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var nodes []string
			for _, n := range tc.nodes {
				nodes = append(nodes, n(t))
			}
			request := readRequest
			if tc.write {
				request = writeRequest
			}
			var asked []int
			if tc.pinned {
				asked = []int{0}
			}
			r := newTestClient(t, cmp.Or(tc.timeout, patient), nodes...).call(t.Context(), request, asked...)
			if r.outcome != tc.outcome || r.status != tc.status || r.node != tc.node || r.doubtful != tc.doubtful {
				t.Errorf("%s, status %d of node %d, doubtful %t, want %s, %d of %d, %t",
					r.outcome, r.status, r.node, r.doubtful, tc.outcome, tc.status, tc.node, tc.doubtful)
			}
			expect.That(t, !r.done.IsZero(), "it is not said when it was done")
		})
	}
}

func TestCallsSkipANodeThatFailedForAWhile(t *testing.T) {
	const timeout = time.Second // the request must reach the silent node within this time
	for _, tc := range []struct {
		name  string
		home  string
		pause time.Duration
	}{
		{name: "took no connection", home: refuses(t), pause: refusedPause},
		{name: "gave no answer in time", home: silentNode(t), pause: silentPause * timeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newTestClient(t, timeout, tc.home, refuses(t), refuses(t))
			before := time.Now()
			c.try(t.Context(), 0, readRequest)
			off := c.links[0].skippedUntil
			expect.That(t, !off.Before(before.Add(tc.pause)) && !off.After(time.Now().Add(tc.pause)),
				"left out for %v, want %v from the failure", off.Sub(before), tc.pause)
			expect.Slice(t, c.toAsk(off.Add(-1)), []int{1, 2}, "meanwhile: asks")
			expect.Slice(t, c.toAsk(off), []int{0, 1, 2}, "then: asks")
			c.links[1].skippedUntil, c.links[2].skippedUntil = off, off
			expect.Slice(t, c.toAsk(off.Add(-1)), []int{0, 1, 2}, "when all have failed: asks")
		})
	}
}

// A connection that ended while no call was under way does not make a call uncertain: nothing was sent over it.
func TestCallReplacesAConnectionThatEndedMeanwhile(t *testing.T) {
	s := standIn(t, func(http.ResponseWriter, *http.Request) {})
	c := newTestClient(t, time.Minute, addrOf(s))
	need.Equal(t, c.call(t.Context(), writeRequest).outcome, trial.Done, "got")
	s.CloseClientConnections()
	for deadline := time.Now().Add(10 * time.Second); c.links[0].conn.Idle(); {
		need.That(t, !time.Now().After(deadline), "the connection is open after 10 s")
	}
	r := c.call(t.Context(), writeRequest)
	expect.That(t, r.outcome == trial.Done && !r.doubtful, "got %s, doubtful %t, want %s", r.outcome, r.doubtful, trial.Done)
}

// The load measures servers on the same cores: a call must not leave work to the collector.
func TestCallAllocatesNothing(t *testing.T) {
	c := newTestClient(t, time.Minute, bareNode(t))
	c.bodies = true
	got := testing.AllocsPerRun(200, func() {
		if r := c.call(t.Context(), readRequest); r.outcome != trial.Done || string(r.body) != "hello" {
			t.Fatalf("got %s and %q, want %s and hello", r.outcome, r.body, trial.Done)
		}
	})
	expect.That(t, got <= 0, "%v allocations for a call, want none", got)
}

// bareNode responds with 200 to every request on one connection, as cheaply as Go can.
func bareNode(t testing.TB) (addr string) {
	t.Helper()
	l := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		buf, answer := make([]byte, 4<<10), []byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
		for err == nil {
			if _, err = conn.Read(buf); err == nil {
				_, err = conn.Write(answer)
			}
		}
	}()
	return l.Addr().String()
}

func TestLoadThatCannotBeIsRefused(t *testing.T) {
	_, err := New(Config{})
	expect.ErrorSays(t, err, "at least one node", "without nodes:")
	_, err = New(Config{Nodes: []string{"a"}, Connections: -1})
	expect.ErrorSays(t, err, "-1 connections", "with fewer than no connections:")
}

func TestSplitDividesNodesAndTheirClients(t *testing.T) {
	for _, tc := range []struct {
		name   string
		splits [][]int
		home   int
		want   []int // of 4
	}{
		{name: "no split", home: 2, want: []int{2, 3, 0, 1}},
		{name: "inside", splits: [][]int{{1, 2}}, home: 2, want: []int{2, 1}},
		{name: "outside", splits: [][]int{{1, 2}}, home: 0, want: []int{0, 3}},
		{name: "twice cut off", splits: [][]int{{1, 2}, {2}}, home: 2, want: []int{2}},
		{name: "left behind", splits: [][]int{{1, 2}, {2}}, home: 1, want: []int{1}},
		{name: "outside of both", splits: [][]int{{1, 2}, {2}}, home: 3, want: []int{3, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r Reach
			for _, nodes := range tc.splits {
				r.Split(nodes)
			}
			expect.Slice(t, r.From(tc.home, 4), tc.want, "clients of %d reach", tc.home)
			r.Join()
			got := r.From(tc.home, 4)
			expect.That(t, len(got) == 4, "after the join clients of %d reach %v, want all four", tc.home, got)
		})
	}
}

func TestSplitAbortsCallsThatCrossIt(t *testing.T) {
	for _, tc := range []struct {
		name    string
		nodes   []int // that are cut off
		outcome trial.Outcome
	}{
		{name: "crossing", nodes: []int{0}, outcome: trial.Unknown},
		{name: "on the same side", nodes: []int{0, 1}, outcome: trial.Done},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked, goOn := make(chan struct{}), make(chan struct{})
			s := standIn(t, func(http.ResponseWriter, *http.Request) {
				close(asked)
				<-goOn
			})
			c := newTestClient(t, time.Hour, refuses(t), addrOf(s), statusServer(t, 200))
			ended := make(chan callResult, 1)
			go func() { ended <- c.call(t.Context(), readRequest) }()
			<-asked
			c.load.Reach.Split(tc.nodes)
			if tc.outcome == trial.Done {
				close(goOn)
			} else {
				defer close(goOn)
			}
			select {
			case r := <-ended:
				expect.That(t, r.outcome == tc.outcome && r.node == 1, "%s, asked node %d last, want %s and 1", r.outcome, r.node, tc.outcome)
			case <-time.After(30 * time.Second):
				t.Error("the call still waits for its answer after 30 s")
			}
		})
	}
}

func TestClientFeelsTheTimeUntilItGetsAnAnswerAgain(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	answered := func(due, done int) func(*felt) { return func(f *felt) { f.add(at(due), at(done), true, due >= 1000) } }
	unanswered := func(due, done int) func(*felt) { return func(f *felt) { f.add(at(due), at(done), false, due >= 1000) } }
	stop := func(ms int) func(*felt) { return func(f *felt) { f.stop(at(ms)) } }
	for _, c := range []struct {
		name            string
		seen            []func(*felt)
		calls, answered int
		gap             trial.Micros // ms
		open            bool
	}{
		{"nothing", nil, 0, 0, 0, false},
		{"an answer takes its time", []func(*felt){answered(100, 130)}, 1, 1, 30, false},
		{"the longest counts", []func(*felt){answered(100, 130), answered(200, 280), answered(300, 310)}, 3, 3, 80, false},
		{"from when the first unanswered call was due", []func(*felt){answered(100, 110), unanswered(200, 250), unanswered(300, 350), answered(400, 410)}, 4, 2, 210, false},
		{"a call that was sent late counts from when it was due", []func(*felt){answered(100, 600)}, 1, 1, 500, false},
		{"a wait that does not end is as long as it was seen", []func(*felt){answered(100, 110), unanswered(300, 350)}, 2, 1, 1700, true},
		{"an answer ends it before the end", []func(*felt){unanswered(300, 350), answered(400, 410)}, 2, 1, 110, false},
		{"a client that stops waits no longer", []func(*felt){unanswered(300, 350), stop(400)}, 1, 0, 100, false},
		{"and waits anew when it calls again", []func(*felt){unanswered(300, 350), stop(400), unanswered(1950, 1960), unanswered(900, 910)}, 2, 0, 1100, true},
		{"a wait that does not end and is longer than one that did", []func(*felt){unanswered(100, 110), answered(900, 950), unanswered(1000, 1010), unanswered(990, 1010)}, 3, 1, 1010, true},
		{"an answer after the load ends a wait, and is no call of it", []func(*felt){unanswered(900, 950), unanswered(1100, 1150), answered(1200, 1210)}, 1, 0, 310, false},
		{"calls after the load begin no wait", []func(*felt){answered(900, 950), unanswered(1100, 1150)}, 1, 1, 50, false},
		{"a client that waits for nothing stops", []func(*felt){answered(100, 110), stop(900)}, 1, 1, 10, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := new(felt)
			for _, see := range c.seen {
				see(f)
			}
			want := trial.Client{Operation: trial.Fetch, Home: 2, Calls: c.calls, Answered: c.answered, Gap: c.gap * 1000, Open: c.open}
			expect.Equal(t, f.saw(at(2000), trial.Fetch, 2), want, "it felt")
		})
	}
	var none *felt
	none.add(at(0), at(1), true, false) // not recorded anywhere
}

func TestClientsAreThoseThatCalled(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Instances: 3, Registers: 20, Fetches: 8})
	l.fleet.interval, l.fleet.stay = 100*time.Millisecond, 150*time.Millisecond
	need.OK(t, l.Register(t.Context()))
	t.Cleanup(l.Stop)
	need.OK(t, l.Run(t.Context(), time.Now(), 500*time.Millisecond))
	found := make(map[trial.Operation]int)
	for _, client := range l.Clients() {
		found[client.Operation]++
		expect.That(t, client.Calls > 0 && client.Answered <= client.Calls, "%+v has not called", client)
	}
	// Deltas have a rate of 0, and so no client; registrations before the start do not count.
	expect.That(t, found[trial.Register] == 10 && found[trial.Heartbeat] >= 3 && found[trial.Fetch] == 4 && found[trial.Delta] == 0,
		"clients are %v, want 10 that registered, the 3 instances, and those of 4 fetches", found)
}

func TestClientsThatFetchPollInTurnAboutOnceASecond(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := newTestLoad(t, c, scenario.Load{Fetches: 6, Deltas: 0.5})
	l.recorder.begin, l.recorder.end = time.Now(), time.Now().Add(time.Minute)
	streams := l.fetchStreams()
	send(t, streams, "fetches", 14)
	send(t, streams, "deltas", 1)
	var got, homes []int
	for _, client := range l.Clients() {
		got, homes = append(got, client.Calls), append(homes, client.Home)
	}
	expect.Slice(t, got, []int{3, 3, 2, 2, 2, 2, 1}, "calls of the three clients of each node, and of the one that asks for deltas:")
	expect.Slice(t, homes, []int{0, 1, 0, 1, 0, 1, 0}, "their homes:")
}

// forgets makes the servers forget an instance, and its client renew it.
func forgets(t *testing.T, c *fakeCluster, l *Load, i *instance) {
	t.Helper()
	c.remove(i.id)
	l.fleet.insist(t.Context(), i, time.Now(), l.fleet.renew)
}

func TestHeartbeatThatIsNotFoundIsForgottenWithTheLastAcknowledgedTime(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{Instances: 2})
	i := l.fleet.lasting[0]
	began := time.Now()
	expect.Slice(t, l.Forgotten(began), nil, "before:")
	beat(t, l)
	acked := i.acked
	expect.That(t, acked.After(began), "the heartbeat was not acknowledged")
	forgets(t, c, l, i)
	again := i.acked // of the registration that followed
	forgets(t, c, l, i)
	got := l.Forgotten(began)
	need.That(t, len(got) == 2, "%d forgotten, want 2: %+v", len(got), got)
	for n, last := range []time.Time{acked, again} {
		f, want := got[n], trial.Since(began, last)
		expect.That(t, f.ID == i.id && f.Node == 0 && f.Last-want <= 1 && want-f.Last <= 1 && f.At >= f.Last,
			"forgotten: %+v, want %s at node 0, last acknowledged at %d", f, i.id, want)
	}
}

func TestHeartbeatAfterACancelIsNotForgotten(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int // of the first cancel; 0 if it succeeds
		again  bool
		want   int
	}{
		{name: "canceled, and registered again", again: true, want: 1},
		{name: "perhaps canceled, and registered again", status: http.StatusGatewayTimeout, again: true, want: 0},
		{name: "not canceled, and registered again", status: http.StatusForbidden, again: true, want: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newFakeCluster(t, 1)
			l := registered(t, c, scenario.Load{Instances: 1})
			i := l.fleet.lasting[0]
			c.decide(func(s seen) int { return map[string]int{http.MethodDelete: tc.status}[s.method] })
			caller := l.newClient(0)
			l.fleet.cancelOnce(t.Context(), caller, i, time.Now())
			if tc.again {
				l.fleet.renew(t.Context(), caller, i, time.Now())
			}
			forgets(t, c, l, i)
			expect.Equal(t, len(l.Forgotten(time.Now())), tc.want, "forgotten:")
		})
	}
}
