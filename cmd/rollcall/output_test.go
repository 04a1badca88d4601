package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func sampleStatus() clusterStatus {
	return clusterStatus{client.Status{
		Node: "node1", Mode: "cp", ClusterID: "c0ffee", Leader: "node2", Term: 3, Ready: true, Quorum: true,
		Condition: "degraded", Summary: "Degraded: node3 cannot be reached; no node may fail.",
		Nodes: []client.NodeStatus{
			{ID: "node1", HTTP: "127.0.0.1:8761", Cluster: "127.0.0.1:7761", Role: "follower", Applied: 41, Lag: 1, Contact: 31, DiskFree: 92_400_000_000, Zone: "a", Version: "0.1"},
			{ID: "node2", HTTP: "127.0.0.1:8762", Cluster: "127.0.0.1:7762", Role: "leader", Applied: 42},
			{ID: "node3", Cluster: "127.0.0.1:7763", Role: "unreachable"},
		},
	}}
}

func sampleInstances() instanceList {
	return instanceList{
		{App: "ORDERS", ID: "orders-1", Status: "OUT_OF_SERVICE", Overridden: "OUT_OF_SERVICE", Host: "orders-1.example.com", IP: "10.0.0.1", Port: 80, SecurePort: 443, VIP: "orders",
			Lease: 30, Interval: 10, LastRenewal: 2000, Registered: 1000, Index: 7, Metadata: map[string]string{"zone": "a"}},
		{App: "USERS", ID: "x\n\x1b[2Jy", Status: "UP", Host: "users-1", IP: "10.0.0.2", SecurePort: 443, Lease: 90, Interval: 30},
	}
}

func remoteInstances() instanceList {
	list := sampleInstances()
	list[0].Datacenter, list[0].UnheardMS = "dc2", 41000
	return append(list, client.Instance{App: "USERS", ID: "u2", Status: "UP", Host: "h", IP: "10.0.0.3", Lease: 90, Owner: client.Owner{Datacenter: "old"}})
}

func sampleEvents() recentEvents {
	return recentEvents{client.Events{
		Registered: []client.Event{{At: 3000, App: "ORDERS", ID: "orders-1"}, {At: 1000, App: "USERS", ID: "users-1"}},
		Canceled:   []client.Event{{At: 2000, App: "ORDERS", ID: "orders-1"}},
	}}
}

func sampleExplanation() explanation {
	return explanation{client.Explanation{
		Summary: "A/b is gone.\nIt was evicted.",
		History: []client.HistoryEvent{
			{At: 1000, What: "registered", Text: "as UP", Times: 1},
			{At: 2000, What: "overridden", Text: "DOWN", Times: 2, Author: "anna", Reason: "\x1b[2J"},
		},
	}}
}

func samplePreservation() preservation {
	return preservation{client.SelfPreservation{
		State: "on", Reason: "8 of 20 leases are fresh.", Since: 1000, Until: 3601000, Withheld: 12, Figures: client.Figures{Leases: 21, Counted: 20, Fresh: 8, Expired: 12},
		Applications: []client.AppFigures{
			{App: "BILLING", Figures: client.Figures{Leases: 1}},
			{App: "ORDERS", Figures: client.Figures{Leases: 20, Counted: 20, Fresh: 8, Expired: 12}, Overdue: []client.Overdue{{ID: "orders-1", SilentMS: 4200, EndsInMS: -1200}}},
		},
		Transitions: []client.PreservationStep{{State: "on", At: 1000, Counted: 20, Fresh: 8, Expired: 12, Reason: "8 of 20"}},
	}}
}

func samplePeers() peerTables {
	heard := int64(41000)
	return peerTables{client.Peers{Peers: []client.Peer{
		{Name: "127.0.0.1:8762", Kind: "node", State: "ok", LastSuccess: 1000},
		{Name: "dc2", Kind: "datacenter", State: "failing", Reason: "dial tcp: connection refused", LagChanges: 5000, LagMS: 90500, LastSuccess: 2000,
			LastRepair: &client.PeerRepair{At: 3000, Reason: "too-old", Sent: 12, Removed: 3},
			Incoming:   &client.Incoming{Instances: 20, HeardMS: &heard, Cut: true, OnCut: "keep for 1h0m0s", Kept: 7}},
		{Name: "old", Kind: "eureka", State: "paused", Incoming: &client.Incoming{OnCut: "expire"}},
	}, Senders: []client.PeerSender{
		{Sender: "n2-4f2a", Datacenter: "dc1", HeardMS: 400},
		{Sender: "c-77", Datacenter: "dc2", HeardMS: 41000, LateMS: 90000, Late: 12, Refused: 3},
	}}}
}

// testdata/output.txt has what commands print.
func TestCommandsPrintTablesAndJSON(t *testing.T) {
	var out bytes.Buffer
	for _, tc := range []struct {
		name  string
		form  cli.Output
		value cli.Tabler
	}{
		{"status", cli.Table, sampleStatus()},
		{"instances, with what could drive a terminal", cli.Table, sampleInstances()},
		{"instances of other datacenters", cli.Table, remoteInstances()},
		{"no instances", cli.Table, instanceList{}},
		{"events, in one order", cli.Table, sampleEvents()},
		{"explanation", cli.Table, sampleExplanation()},
		{"self-preservation that is on", cli.Table, samplePreservation()},
		{"self-preservation of an empty registry", cli.Table, preservation{client.SelfPreservation{State: "off", Reason: "no lease is counted."}}},
		{"quarantined", cli.Table, quarantineList{{App: "ORDERS", ID: "orders-1", Status: "UP", Host: "h", IP: "10.0.0.1", LastRenewal: 1000, QuarantinedUntil: 2000}}},
		{"a restore that would change something", cli.Table, restored{DryRun: true, Keys: 1, Plan: &client.RestorePlan{KeysWritten: []string{"config/colour"}}}},
		{"a restore that would change nothing", cli.Table, restored{DryRun: true, InstancesStayed: 2, Plan: &client.RestorePlan{}}},
		{"differences", cli.Table, differences{{"~", "key", "config/colour"}}},
		{"a recovery", cli.Table, recovered{Node: "n2", ClusterID: "c0ffee", Entry: 7, Before: 5, Index: 9, Others: []string{"n1", "n3", "n4"}, Old: "old"}},
		{"done", cli.Table, done{Done: "overridden", App: "ORDERS", ID: "orders-1", Status: "DOWN"}},
		{"peers", cli.Table, samplePeers()},
		{"no peers", cli.Table, peerTables{}},
		{"instances", cli.JSON, sampleInstances()[:1]},
		{"no instances", cli.JSON, instanceList{}},
		{"status", cli.JSON, clusterStatus{client.Status{Mode: "cp", ClusterID: "c", Leader: "n", Term: 1, Nodes: []client.NodeStatus{{ID: "n", HTTP: "h", Cluster: "c", Role: "leader", Applied: 2}}}}},
	} {
		fmt.Fprintf(&out, "== %s, %s ==\n", tc.name, tc.form)
		need.OK(t, tc.form.Print(&out, tc.value))
	}
	golden.Page(t, "testdata/output.txt", out.String())
}

func TestConfigShowMarksSettingsThatDifferFromTheClusters(t *testing.T) {
	s := newFakeServer(t, 200, `{"self-preservation.enabled":true,"self-preservation.renewal-percent-threshold":0.850,"self-preservation.min-instances":20,
		"self-preservation.max-duration":"60m","eureka-compat.expectation":true,"replication.on-cut":"dc2=keep-for:1h0m0s","unknown.key":1}`)
	stdout, stderr, code := rollcall(t, "config", "show", "--effective", "--data-dir=d", "--addr", s.URL,
		"--replication-datacenters=dc2=http://10.1.0.1:8761,dc3=http://10.1.0.2:8761", "--replication-on-cut=dc2=keep-for:60m,dc3=keep")
	need.That(t, code == cli.ExitOK, "exit %d: %s", code, stderr)
	if want := "GET /v1/rollcall/settings"; len(s.requests) != 1 || s.requests[0] != want {
		t.Errorf("sent %q, want %q", s.requests, want)
	}
	var marked []string
	for line := range strings.Lines(stdout) {
		if strings.Contains(line, "the cluster has") {
			marked = append(marked, strings.TrimSpace(line))
		}
	}
	want := []string{"expectation: false # default, but the cluster has true", "min-instances: 10 # default, but the cluster has 20"}
	expect.Deep(t, marked, want, "marked")
}

func TestConfigShowFailsWhenTheClusterCannotBeAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no server there":     {args: []string{"--effective", "--addr", "127.0.0.1:1"}, code: cli.ExitError, says: "read the cluster's settings"},
		"no URL":              {args: []string{"--effective", "--addr", "ftp://a"}, code: cli.ExitUsage, says: "--addr"},
		"without --effective": {args: []string{"--addr", "127.0.0.1:1"}, code: cli.ExitUsage, says: "give --effective too"},
	} {
		stdout, stderr, code := rollcall(t, append([]string{"config", "show", "--data-dir=d"}, tc.args...)...)
		expect.That(t, code == tc.code && strings.Contains(stderr, tc.says) && stdout == "",
			"%s: exit %d, said %q, printed %q, want exit %d and %q", name, code, stderr, stdout, tc.code, tc.says)
	}
}

func TestConfigInitWritesAFileThatValidateTakesAndOverwritesNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rollcall.yaml")
	for _, step := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"config", "init", file}, cli.ExitOK, ""},
		{[]string{"config", "validate", file}, cli.ExitOK, ""},
		{[]string{"config", "init", file}, cli.ExitError, "not overwritten"},
		{[]string{"config", "validate", file + ".missing"}, cli.ExitError, "no such file"},
		{[]string{"config", "validate"}, cli.ExitUsage, ""},
	} {
		_, stderr, code := rollcall(t, step.args...)
		expect.That(t, code == step.code && strings.Contains(stderr, step.says), "%v: exit %d, %q, want %d and %q", step.args, code, stderr, step.code, step.says)
	}
	stdout, _, code := rollcall(t, "config", "schema")
	expect.That(t, code == cli.ExitOK && json.Valid([]byte(stdout)) && strings.Contains(stdout, `"shutdown-delay"`), "schema: exit %d, %.200s", code, stdout)
}

func TestConfigInitWithTLSWritesFoldersThatValidateTakes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	for _, step := range []struct {
		args []string
		code int
		says string // on either output
	}{
		{[]string{"init", "--tls", dir, "n1=127.0.0.1", "n2=127.0.0.2"}, cli.ExitOK, filepath.Join(dir, "n2") + ": copy this folder to 127.0.0.2"},
		{[]string{"validate", filepath.Join(dir, "n2", "rollcall.yaml")}, cli.ExitOK, ""},
		{[]string{"init", "--tls", dir, "n1=127.0.0.9"}, cli.ExitError, "node n1 is there already"},
		{[]string{"init", "--tls", dir, "n3=127.0.0.3"}, cli.ExitOK, "n3"},
		{[]string{"init", "--tls", dir}, cli.ExitUsage, "no node is named"},
		{[]string{"init", "--tls", "n1=127.0.0.9"}, cli.ExitUsage, "give the folder to write into"},
		{[]string{"init", "--tls", dir, "n4=127.0.0.4:1"}, cli.ExitUsage, "without a port"},
		{[]string{"init", dir, "n4=127.0.0.4"}, cli.ExitUsage, "needs --tls"},
	} {
		stdout, stderr, code := rollcall(t, append([]string{"config"}, step.args...)...)
		expect.That(t, code == step.code && strings.Contains(stdout+stderr, step.says), "%v: exit %d, %q, %q, want %d and %q", step.args, code, stdout, stderr, step.code, step.says)
	}
}

const watchStream = `event: start
id: e-5
data: {"index":"e-5"}

event: change
id: e-6
data: {"index":"e-6","action":"ADDED","why":"registered","app":"ORDERS","id":"orders-1","status":"UP","instance":{"instanceId":"orders-1","app":"ORDERS","status":"UP","port":{"$":80,"@enabled":"true"}}}

event: reset
id: e-9
data: {"index":"e-9","reason":"too old"}

event: change
id: e-10
data: {"index":"e-10","action":"DELETED","why":"evicted","app":"ORDERS","id":"x\u001b[2J","status":"UP"}

`

// watched runs a watch on a server that sends watchStream until it is cut off after the line that ends with last.
func watched(t *testing.T, last string, args ...string) (stdout, stderr string, code int, asked string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.RequestURI()
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, watchStream)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &endingWriter{last: last, end: cancel}
	var errs bytes.Buffer
	root := newRootCommand()
	root.SetArgs(append([]string{"watch", "--addr", s.URL}, args...))
	root.SetOut(out)
	root.SetErr(&errs)
	code = cli.ExitCode(&errs, "rollcall", root.ExecuteContext(ctx))
	return out.String(), strings.ReplaceAll(errs.String(), s.URL, "SERVER"), code, asked
}

// endingWriter ends something when a text was written.
type endingWriter struct {
	bytes.Buffer
	last string
	end  func()
}

func (w *endingWriter) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if strings.Contains(w.String(), w.last) {
		w.end()
	}
	return n, err
}

func TestWatchPrintsALineForEachChange(t *testing.T) {
	stdout, stderr, code, asked := watched(t, "evicted", "orders", "--index", "e-5")
	lines := strings.Split(stdout, "\n")
	if code != cli.ExitOK || len(lines) != 3 ||
		!strings.HasSuffix(lines[0], "Z  ADDED     ORDERS/orders-1  UP  registered") || !strings.HasSuffix(lines[1], "Z  DELETED   ORDERS/x?[2J  UP  evicted") {
		t.Errorf("exit %d, printed %q", code, lines)
	}
	expect.OK(t, expect.Err(time.Parse("2006-01-02T15:04:05.000Z", strings.Fields(stdout)[0])))
	expect.Equal(t, stderr, "watching SERVER, after e-5\nchanges before e-9 may have been missed: too old\n", "said")
	expect.Equal(t, asked, "GET /v1/rollcall/watch?app=ORDERS&index=e-5", "sent")
}

func TestWatchPrintsAJSONLineForEachEvent(t *testing.T) {
	stdout, _, code, _ := watched(t, "evicted", "-o", "json")
	_, rest, _ := strings.Cut(stdout, "\n") // the first one names the server
	const want = `{"event":"change","index":"e-6","action":"ADDED","why":"registered","app":"ORDERS","id":"orders-1","status":"UP","instance":{"app":"ORDERS","id":"orders-1","status":"UP","host":"","ip":"","port":80,"lease_seconds":90,"interval_seconds":30,"last_renewal":0,"registered":0,"index":6}}
{"event":"reset","index":"e-9","reason":"too old"}
{"event":"change","index":"e-10","action":"DELETED","why":"evicted","app":"ORDERS","id":"x\u001b[2J","status":"UP"}
`
	expect.That(t, code == cli.ExitOK && rest == want && strings.HasPrefix(stdout, `{"event":"start","index":"e-5","server":"http://`),
		"exit %d, printed\n%s\nwant a start and\n%s", code, stdout, want)
}

func TestWatchEndsAfterATimeOrANumberOfChanges(t *testing.T) {
	stdout, _, code, _ := watched(t, "never", "--count", "1")
	expect.That(t, code == cli.ExitOK && strings.Count(stdout, "\n") == 1 && strings.Contains(stdout, "ADDED"), "with --count 1: exit %d, printed %q", code, stdout)
	began := time.Now()
	stdout, _, code, _ = watched(t, "never", "--for", "300ms")
	expect.That(t, code == cli.ExitOK && strings.Count(stdout, "\n") == 2 && time.Since(began) >= 300*time.Millisecond, "with --for: exit %d, printed %q", code, stdout)
	_, stderr, code, _ := watched(t, "never", "--for", "-1s")
	expect.That(t, code == cli.ExitUsage && strings.Contains(stderr, "--for -1s"), "with a negative time: exit %d, %q", code, stderr)
}

func TestKVWatchPrintsWhatChanged(t *testing.T) {
	states := [][]client.Pair{
		{{Key: "b", ModifyIndex: 5, Value: []byte("blue\n")}, {Key: "c", ModifyIndex: 6}},
		{{Key: "a", ModifyIndex: 7, Value: []byte{0}}, {Key: "b", ModifyIndex: 8, Session: "s1"}, {Key: "c", ModifyIndex: 6}},
		{{Key: "b", ModifyIndex: 9}},
		nil,
	}
	want := `T  present   b  5  blue
T  present   c  6  -
T  written   a  7  1 bytes
T  acquired  b  8  -
T  deleted   a  -  -
T  released  b  9  -
T  deleted   c  -  -
T  deleted   b  -  -
`
	var out strings.Builder
	now := time.UnixMilli(0)
	p := keyPrinter{out: &out, form: cli.Table, now: func() time.Time { return now }}
	for _, state := range states {
		need.OK(t, p.tree(state))
	}
	got := strings.ReplaceAll(out.String(), "1970-01-01T00:00:00.000Z", "T")
	expect.That(t, got == want, "got\n%swant\n%s", got, want)
}

func TestKVWatchPrintsALinePerChangeInJSON(t *testing.T) {
	var out strings.Builder
	p := keyPrinter{out: &out, form: cli.JSON}
	for _, state := range [][]client.Pair{{{Key: "a", ModifyIndex: 5, Value: []byte("x")}}, nil} {
		need.OK(t, p.tree(state))
	}
	want := `{"event":"present","key":"a","value":"eA==","flags":0,"lock_index":0,"create_index":0,"modify_index":5}
{"event":"deleted","key":"a","value":"","flags":0,"lock_index":0,"create_index":0,"modify_index":0}
`
	expect.That(t, out.String() == want, "got\n%swant\n%s", out.String(), want)
}
