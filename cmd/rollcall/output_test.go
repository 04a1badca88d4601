package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
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
