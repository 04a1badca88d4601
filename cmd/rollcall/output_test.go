package main

import (
	"bytes"
	"testing"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
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

func TestCommandsPrintTables(t *testing.T) {
	for _, tc := range []struct {
		name  string
		value cli.Tabler
		want  string
	}{
		{name: "status", value: sampleStatus(), want: `CLUSTER  MODE  LEADER  TERM  QUORUM
c0ffee   cp    node2   3     yes

NODE   ROLE         HTTP            NODE-TO-NODE    APPLIED  LAG  CONTACT   DISK          ZONE  VERSION
node1  follower     127.0.0.1:8761  127.0.0.1:7761  41       1    31ms ago  92.4 GB free  a     0.1
node2  leader       127.0.0.1:8762  127.0.0.1:7762  42       0    -         -             -     -
node3  unreachable  -               127.0.0.1:7763  -        -    -         -             -     -

Degraded: node3 cannot be reached; no node may fail.
`},
		{name: "instances, with what could drive a terminal", value: sampleInstances(), want: `APP     ID        STATUS          HOST                  IP        PORT         VIP     LEASE
ORDERS  orders-1  OUT_OF_SERVICE  orders-1.example.com  10.0.0.1  80,443(tls)  orders  30s
USERS   x??[2Jy   UP              users-1               10.0.0.2  443(tls)     -       90s
`},
		{name: "instances of other datacenters", value: remoteInstances(), want: `APP     ID        STATUS          HOST                  IP        PORT         VIP     LEASE  DATACENTER
ORDERS  orders-1  OUT_OF_SERVICE  orders-1.example.com  10.0.0.1  80,443(tls)  orders  30s    dc2 (unheard for 41s)
USERS   x??[2Jy   UP              users-1               10.0.0.2  443(tls)     -       90s    -
USERS   u2        UP              h                     10.0.0.3  -            -       90s    old
`},
		{name: "no instances", value: instanceList{}, want: "APP  ID  STATUS  HOST  IP  PORT  VIP  LEASE\n"},
		{name: "events, in one order", value: sampleEvents(), want: `TIME                  EVENT       APP     ID
1970-01-01T00:00:03Z  registered  ORDERS  orders-1
1970-01-01T00:00:02Z  canceled    ORDERS  orders-1
1970-01-01T00:00:01Z  registered  USERS   users-1
`},
		{name: "explanation", value: sampleExplanation(), want: `A/b is gone.?It was evicted.

TIME                  EVENT       TIMES  DETAILS  BY    REASON
1970-01-01T00:00:01Z  registered  1      as UP    -     -
1970-01-01T00:00:02Z  overridden  2      DOWN     anna  ?[2J
`},
		{name: "self-preservation that is on", value: samplePreservation(), want: `8 of 20 leases are fresh.

STATE  SINCE                 UNTIL                 BY  NOTE  WITHHELD
on     1970-01-01T00:00:01Z  1970-01-01T01:00:01Z  -   -     12

APP      LEASES  COUNTED  FRESH  EXPIRED
BILLING  1       0        0      0
ORDERS   20      20       8      12
(all)    21      20       8      12

OVERDUE          SILENT  ENDS IN
ORDERS/orders-1  4.2s    -1.2s

TIME                  BECAME  BY  COUNTED  FRESH  EXPIRED  REASON
1970-01-01T00:00:01Z  on      -   20       8      12       8 of 20
`},
		{name: "self-preservation of an empty registry", value: preservation{client.SelfPreservation{State: "off", Reason: "no lease is counted."}}, want: `no lease is counted.

STATE  SINCE  UNTIL  BY  NOTE  WITHHELD
off    -      -      -   -     0

APP    LEASES  COUNTED  FRESH  EXPIRED
(all)  0       0        0      0
`},
		{name: "quarantined", value: quarantineList{{App: "ORDERS", ID: "orders-1", Status: "UP", Host: "h", IP: "10.0.0.1", LastRenewal: 1000, QuarantinedUntil: 2000}}, want: `APP     ID        STATUS  HOST  IP        LAST RENEWAL          UNTIL
ORDERS  orders-1  UP      h     10.0.0.1  1970-01-01T00:00:01Z  1970-01-01T00:00:02Z
`},
		{name: "a restore that would change something", value: restored{DryRun: true, Keys: 1, Plan: &client.RestorePlan{KeysWritten: []string{"config/colour"}}}, want: `WOULD BE                             NUMBER
instances that come back             0
instances that stay as they are now  0
keys written                         1
keys deleted                         0
sessions ended                       0

CHANGE  KIND  NAME
+       key   config/colour
`},
		{name: "a restore that would change nothing", value: restored{DryRun: true, InstancesStayed: 2, Plan: &client.RestorePlan{}}, want: `WOULD BE                             NUMBER
instances that come back             0
instances that stay as they are now  2
keys written                         0
keys deleted                         0
sessions ended                       0

nothing would change
`},
		{name: "differences", value: differences{{"~", "key", "config/colour"}}, want: "CHANGE  KIND  NAME\n~       key   config/colour\n"},
		{name: "a recovery", value: recovered{Node: "n2", ClusterID: "c0ffee", Entry: 7, Before: 5, Index: 9, Others: []string{"n1", "n3", "n4"}, Old: "old"}, want: `recovered n2 of cluster c0ffee: 0 instances, 0 keys, up to index c0ffee-5 (log entry 7)
what n1, n3 and n4 had after 5 is lost; the index goes on from 9
the directory as it was: old
now start n2, and the others with empty data directories; never start them with their old ones
`},
		{name: "done", value: done{Done: "overridden", App: "ORDERS", ID: "orders-1", Status: "DOWN"}, want: "overridden  ORDERS/orders-1  DOWN\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			need.OK(t, cli.Table.Print(&out, tc.value))
			expect.That(t, out.String() == tc.want, "got\n%s\nwant\n%s", out.String(), tc.want)
		})
	}
}

func TestCommandsPrintJSON(t *testing.T) {
	for _, tc := range []struct {
		name  string
		value cli.Tabler
		want  string
	}{
		{name: "instances", value: sampleInstances()[:1], want: `[
  {
    "app": "ORDERS",
    "id": "orders-1",
    "status": "OUT_OF_SERVICE",
    "overridden": "OUT_OF_SERVICE",
    "host": "orders-1.example.com",
    "ip": "10.0.0.1",
    "port": 80,
    "secure_port": 443,
    "vip": "orders",
    "lease_seconds": 30,
    "interval_seconds": 10,
    "last_renewal": 2000,
    "registered": 1000,
    "index": 7,
    "metadata": {
      "zone": "a"
    }
  }
]
`},
		{name: "no instances", value: instanceList{}, want: "[]\n"},
		{name: "status", value: clusterStatus{client.Status{Mode: "cp", ClusterID: "c", Leader: "n", Term: 1, Nodes: []client.NodeStatus{{ID: "n", HTTP: "h", Cluster: "c", Role: "leader", Applied: 2}}}}, want: `{
  "node": "",
  "datacenter": "",
  "version": "",
  "mode": "cp",
  "cluster_id": "c",
  "leader": "n",
  "term": 1,
  "ready": false,
  "quorum": false,
  "condition": "",
  "summary": "",
  "nodes": [
    {
      "id": "n",
      "http": "h",
      "cluster": "c",
      "role": "leader",
      "applied": 2,
      "voter": false
    }
  ]
}
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			need.OK(t, cli.JSON.Print(&out, tc.value))
			expect.That(t, out.String() == tc.want, "got\n%s\nwant\n%s", out.String(), tc.want)
		})
	}
}
