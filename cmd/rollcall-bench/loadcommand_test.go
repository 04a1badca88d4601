package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestBenchRunNamesEveryMistakeAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		args string
		says []string
	}{
		{name: "too few", args: "--instances 99", says: []string{"--instances: 99 is not between 100 and 100000"}},
		{name: "too many", args: "--instances 100001", says: []string{"--instances: 100001"}},
		{name: "half a second", args: "--heartbeat 500ms", says: []string{"--heartbeat: 500ms is not a whole number of seconds"}},
		{name: "short lease", args: "--heartbeat 3s --lease 3s", says: []string{"--lease: 3s is not longer than --heartbeat (3s)"}},
		{name: "negative rates", args: "--reads -1 --writes -2 --fetches -3 --deltas -4 --registers -5",
			says: []string{"--reads: -1 is", "--writes: -2 is", "--fetches: -3 is", "--deltas: -4 is", "--registers: -5 is"}},
		{name: "no number", args: "--reads NaN", says: []string{"--reads: NaN"}},
		{name: "no time", args: "--duration 10ms --timeout 0s --warm-up -1s", says: []string{"--duration: 10ms", "--timeout: 0s", "--warm-up: -1s"}},
		{name: "negative counts", args: "--watchers -1 --connections -1 --per-app -1", says: []string{"--watchers: -1", "--connections: -1", "--per-app: -1"}},
		{name: "prefix", args: "--prefix a/b", says: []string{`--prefix: "a/b"`}},
		{name: "no prefix", args: "--prefix=", says: []string{`--prefix: ""`}},
		{name: "forms", args: "-o xml --out load.txt", says: []string{"--output: ", "--out: load.txt"}},
		{name: "TLS", args: "--addr https://a:1", says: []string{"--addr: https://a:1: the load speaks plain HTTP"}},
		{name: "several servers", args: "--addr a:1,ftp://b --addr c/d", says: []string{"--addr: ftp://b", "--addr: http://c/d is not a server"}},
		{name: "argument", args: "now", says: []string{"unknown command"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := bench(t, append([]string{"run"}, strings.Fields(tc.args)...)...)
			expect.That(t, code == cli.ExitUsage && stdout == "", "exit %d and %q, want %d and nothing: %s", code, stdout, cli.ExitUsage, stderr)
			for _, want := range tc.says {
				expect.That(t, strings.Contains(stderr, want), "it said %q, want %q", stderr, want)
			}
		})
	}
}

func TestBenchRunNeedsACluster(t *testing.T) {
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	t.Cleanup(refuses.Close)
	for _, addr := range []string{"127.0.0.1:1", refuses.URL} {
		_, stderr, code := bench(t, "run", "--addr", addr)
		expect.That(t, code == cli.ExitError && strings.Contains(stderr, "find the cluster: "),
			"%s: exit %d, said %q, want %d and that there is no cluster", addr, code, stderr, cli.ExitError)
	}
}

func TestBenchRunLoadsTheServersThatAreNamed(t *testing.T) {
	for _, tc := range []struct {
		name  string
		addrs []string
		env   string
		want  []string
	}{
		{name: "default", want: []string{"127.0.0.1:8761"}},
		{name: "environment", env: "a:1, http://b:2/", want: []string{"a:1", "b:2"}},
		{name: "flags over environment", addrs: []string{"c:3", "d"}, env: "a:1", want: []string{"c:3", "d:80"}},
		{name: "IPv6", addrs: []string{"[::1]:8761"}, want: []string{"[::1]:8761"}},
	} {
		t.Setenv(cli.AddrEnv, tc.env)
		o := loadOptions{addrs: tc.addrs}
		got, err := o.servers()
		expect.That(t, err == nil && slices.Equal(got, tc.want), "%s: %q, %v, want %q", tc.name, got, err, tc.want)
	}
}

func TestBenchRunFindsTheNodesThatTheClusterReaches(t *testing.T) {
	got, err := nodesOf(client.Status{Nodes: []client.NodeStatus{
		{ID: "node1", HTTP: "127.0.0.1:8761", Role: "leader"},
		{ID: "node2", HTTP: "http://127.0.0.1:8762", Role: "serving"},
		{ID: "node3", HTTP: "127.0.0.1:8763", Role: "unreachable"},
		{ID: "node4", Role: "follower"},
	}})
	want := []string{"127.0.0.1:8761", "127.0.0.1:8762"}
	expect.That(t, err == nil && slices.Equal(got, want), "%q, %v, want %q", got, err, want)
	got, err = nodesOf(client.Status{Node: "node1"})
	expect.That(t, err != nil, "%q of a cluster that tells no addresses, want an error", got)
}

func TestBenchRunDoesNotCountTheWarmUp(t *testing.T) {
	r := loadRun{loadOptions: &loadOptions{warmUp: 200 * time.Millisecond}, length: 300 * time.Millisecond}
	var bins []trial.Bin
	for n := range 8 {
		bins = append(bins, trial.Bin{Number: n, Done: 1 << n})
	}
	got := r.counted([]trial.Series{{Operation: trial.ProbeRead, Node: 1, Bins: bins}})
	var counted []int
	for _, b := range got[0].Bins {
		counted = append(counted, b.Number, b.Done)
	}
	want := []int{0, 4, 1, 8, 2, 16}
	expect.That(t, slices.Equal(counted, want) && got[0].Node == 1, "bins and calls %v of node %d, want %v of node 1", counted, got[0].Node, want)
}

// exampleSummary has two operations, over a second.
func exampleSummary() *loadSummary {
	s := &loadSummary{Nodes: []string{"a:1", "b:2"}, Mode: "cp", Loop: "open", Offered: 20, Seconds: 1, series: []trial.Series{
		{Operation: trial.Heartbeat, Node: 0, Bins: []trial.Bin{{Number: 0, Done: 8, Latencies: []int64{1000, 7, 3000, 1}}, {Number: 9, Unknown: 1, Refused: 1}}},
		{Operation: trial.ProbeRead, Node: 1, Bins: []trial.Bin{{Number: 3, Done: 9, NotFound: 1, Latencies: []int64{2000, 10}}}},
	}}
	s.count(time.Second)
	return s
}

func TestBenchRunSummaryAddsUp(t *testing.T) {
	s := exampleSummary()
	expect.That(t, s.Sent == 20 && s.Answered == 18, "sent %v, answered %v, want 20 and 18", s.Sent, s.Answered)
	got := s.Operations[trial.Heartbeat]
	expect.That(t, got.Count == 10 && got.Success == 0.8 && got.Latency.P50 == 0.001 && got.Latency.Max == 0.003,
		"heartbeats %+v, want 10, 80 %%, 1 ms and 3 ms", got)
	expect.Equal(t, s.behind(), "", "it notes")
	s.Offered = 30
	note := s.behind()
	expect.That(t, strings.Contains(note, "Of the 30.0 calls per second that were due, 20.0 were sent"), "it notes %q, want that not all were sent", note)
}

func TestBenchRunTableShowsWhatWasNotDone(t *testing.T) {
	var out bytes.Buffer
	need.OK(t, exampleSummary().print(&out, cli.Table))
	lines := strings.Split(out.String(), "\n")
	for n, want := range []string{
		"OPERATION   CALLS  ANSWERED/S  SUCCESS  P50      P90      P99      P99.9    MAX      NOT DONE",
		"heartbeat   10     8.00        80.00 %  1.00 ms  3.00 ms  3.00 ms  3.00 ms  3.00 ms  1 unknown, 1 refused",
		"probe read  10     10.0        100 %    2.00 ms  2.00 ms  2.00 ms  2.00 ms  2.00 ms  1 not found",
	} {
		expect.Equal(t, lines[n], want, "line %d is", n)
	}
}

func TestBenchRunWithoutAnyResponseIsAnError(t *testing.T) {
	for _, tc := range []struct {
		name           string
		sent, answered float64
		fails          bool
	}{
		{name: "answered", sent: 2, answered: 1},
		{name: "nothing sent"},
		{name: "nothing answered", sent: 2, fails: true},
	} {
		s := loadSummary{Nodes: []string{"a:1"}, Sent: tc.sent, Answered: tc.answered}
		err := s.unanswered()
		expect.That(t, (err != nil) == tc.fails, "%s: %v", tc.name, err)
	}
}

func TestBenchRunSaysThatTheLoadGeneratorWasLate(t *testing.T) {
	for _, tc := range []struct {
		name string
		late time.Duration
		says string
	}{
		{name: "as on any machine", late: 2 * time.Millisecond},
		{name: "late", late: 30 * time.Millisecond, says: "The load generator itself was late: for 1 % of the time by 30ms or more (at most 30ms)"},
	} {
		l := lateness{load.NewLatency()}
		for range 90 {
			l.add(-time.Microsecond)
		}
		for range 10 {
			l.add(tc.late)
		}
		got := l.sentence()
		expect.That(t, strings.HasPrefix(got, tc.says) && (got == "") == (tc.says == ""), "%s: it says %q, want %q", tc.name, got, tc.says)
	}
}

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

func registration(t *testing.T, request []byte, app string) *registry.Instance {
	t.Helper()
	r, body := parse(t, request)
	expect.That(t, r.Method == http.MethodPost && r.URL.Path == "/eureka/apps/"+app, "%s %s, want POST to /eureka/v2/apps/%s", r.Method, r.URL, app)
	return need.Got(eureka.DecodeRegistration(body, eureka.Format{}, app))(t)
}

func TestFleetRequestsAreWhatClientsSend(t *testing.T) {
	f := benchFleet{name: "svc", size: 300}
	i := registration(t, f.registration(250), f.app(250))
	expect.That(t, i.ID() == f.id(250) && i.LastDirty == load.DirtyBase && i.RenewalInterval == 30 && i.Duration >= 3600 && i.Status == registry.Up,
		"the server reads %+v", i)
	r, body := parse(t, f.renewal(250))
	if r.Method != http.MethodPut || r.URL.Path != "/eureka/apps/"+f.app(250)+"/"+f.id(250) || len(body) != 0 ||
		r.URL.Query().Get("status") != "UP" || r.URL.Query().Get("lastDirtyTimestamp") != "1767225599000" {
		t.Errorf("renewal %s %s with %q", r.Method, r.URL, body)
	}
}

func TestFleetFetchesAskForCompressedJSON(t *testing.T) {
	r, _ := parse(t, fetchesOf(fullStale)(0, 1)())
	expect.That(t, r.URL.String() == fullStale && r.Header.Get("Accept") == "application/json" && r.Header.Get("Accept-Encoding") == "gzip",
		"%s with %v", r.URL, r.Header)
}
