package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

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
