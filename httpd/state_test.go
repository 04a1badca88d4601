package httpd_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// cluster is a fixed httpd.Cluster.
type cluster api.Status

// Status implements httpd.Cluster.
func (c cluster) Status(context.Context) api.Status { return api.Status(c) }

var threeNodes = cluster{
	Mode: "cp", ClusterID: "c1", Leader: "n2", Term: 7,
	Nodes: []api.NodeStatus{
		{ID: "n1", HTTP: "127.0.0.1:8761", Cluster: "127.0.0.1:7761", Role: "follower", Applied: 41},
		{ID: "n2", HTTP: "127.0.0.1:8762", Cluster: "127.0.0.1:7762", Role: "leader", Applied: 42, Index: "c1-17"},
		{ID: "n3", Cluster: "127.0.0.1:7763", Role: "unreachable"},
	},
}

func TestStatusShowsTheCluster(t *testing.T) {
	n := newNode(t, httpd.Config{Cluster: threeNodes, Node: "n1", Datacenter: "dc1", Version: "v1"}, nil)
	want := `{"node":"n1","datacenter":"dc1","version":"v1","mode":"cp","cluster_id":"c1","leader":"n2","term":7,"ready":true,"quorum":true,"condition":"","summary":"","nodes":[` +
		`{"id":"n1","http":"127.0.0.1:8761","cluster":"127.0.0.1:7761","role":"follower","applied":41,"voter":false},` +
		`{"id":"n2","http":"127.0.0.1:8762","cluster":"127.0.0.1:7762","role":"leader","applied":42,"index":"c1-17","voter":false},` +
		`{"id":"n3","http":"","cluster":"127.0.0.1:7763","role":"unreachable","applied":0,"voter":false}]}` + "\n"
	expect.Equal(t, n.send(t, request("GET", "/v1/rollcall/status", "")).body, want, "got")
}

func TestStatusOfANodeWithoutAClusterHasNoNodes(t *testing.T) {
	n := newNode(t, httpd.Config{Node: "n1"}, nil)
	got := n.send(t, request("GET", "/v1/rollcall/status", ""))
	expect.That(t, strings.Contains(got.body, `"nodes":[]`), "got %s, want an empty list of nodes", got.body)
}

func TestInstanceListHasEveryInstance(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	instance := newInstance("ORDERS", "i1")
	instance.Duration, instance.RenewalInterval = 30, 10
	n.Perform(t, registry.Register{Instance: instance}, registry.Register{Instance: newInstance("PAY", "p1")},
		registry.SetOverride{Key: instance.Key(), Status: registry.OutOfService})
	list := func(query string) []map[string]any {
		var instances []map[string]any
		got := n.send(t, request("GET", "/v1/rollcall/apps"+query, ""))
		err := json.Unmarshal([]byte(got.body), &instances)
		need.That(t, err == nil, "%s: %v in %s", query, err, got.body)
		return instances
	}
	for query, want := range map[string]int{"": 2, "?app=orders": 1, "?app=none": 0} {
		expect.Equal(t, len(list(query)), want, "%q lists instances:", query)
	}
	got := list("?app=ORDERS")[0]
	for key, want := range map[string]any{
		"app": "ORDERS", "id": "i1", "status": "OUT_OF_SERVICE", "overridden": "OUT_OF_SERVICE", "host": "host-i1", "ip": "10.0.0.1",
		"port": 8080.0, "vip": "orders", "lease_seconds": 30.0, "interval_seconds": 10.0, "index": 3.0,
	} {
		expect.Equal(t, got[key], want, "%s is", key)
	}
	for _, key := range []string{"last_renewal", "registered"} {
		ms, ok := got[key].(float64)
		expect.That(t, ok && ms >= 1_600_000_000_000, "%s is %v, want ms since the epoch", key, got[key])
	}
}

func TestEventsAreShownNewestFirst(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	n.Perform(t, registry.Register{Instance: newInstance("A", "1")}, registry.Register{Instance: newInstance("A", "2")}, registry.Cancel{Key: registry.NewKey("A", "1")})
	var events struct{ Registered, Canceled []struct{ App, ID string } }
	got := n.send(t, request("GET", "/v1/rollcall/events", ""))
	need.OK(t, json.Unmarshal([]byte(got.body), &events))
	expect.That(t, len(events.Registered) == 2 && events.Registered[0].ID == "2" && events.Registered[1].ID == "1", "registered: %+v", events.Registered)
	expect.That(t, len(events.Canceled) == 1 && events.Canceled[0].ID == "1" && events.Canceled[0].App == "A", "canceled: %+v", events.Canceled)
}

func TestOwnErrorsAreJSON(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	for path, want := range map[string]int{
		"/v1/rollcall/apps?consistency=eventual": 400, "/v1/rollcall/nothing": 404, "/v1/rollcall/%00": 400,
		"/v1/rollcall/apps?" + strings.Repeat("a&", 40): 400, "/v1/rollcall/apps?app=%zz": 400,
	} {
		got := n.send(t, request("GET", path, ""))
		var doc struct{ Error string }
		err := json.Unmarshal([]byte(got.body), &doc)
		expect.That(t, err == nil && doc.Error != "" && got.status == want,
			"GET %s: got %d %q, want %d and an error in JSON", path, got.status, got.body, want)
		expect.Equal(t, got.header.Get("Content-Type"), "application/json", "GET %s: Content-Type is", path)
	}
	n.send(t, request("POST", "/v1/rollcall/apps", "")).says(t, 405, "", "POST").with(t, "Allow", "GET, HEAD")
}

func TestEurekaStatusListsTheReplicas(t *testing.T) {
	n := newNode(t, httpd.Config{Cluster: threeNodes, Node: "n1"}, nil)
	var doc struct {
		ApplicationStats map[string]string
		InstanceInfo     struct {
			HostName string
			Port     map[string]any
		}
	}
	got := n.send(t, request("GET", "/eureka/status", "", "Accept: application/json"))
	need.OK(t, json.Unmarshal([]byte(got.body), &doc))
	for key, want := range map[string]string{
		"registered-replicas":  "http://127.0.0.1:8762/eureka/, http://n3/eureka/",
		"available-replicas":   "http://127.0.0.1:8762/eureka/,",
		"unavailable-replicas": "http://n3/eureka/,",
	} {
		expect.Equal(t, doc.ApplicationStats[key], want, "%s is", key)
	}
	expect.That(t, doc.InstanceInfo.HostName == "127.0.0.1" && doc.InstanceInfo.Port["$"] == 8761.0, "the node's own instance is at %v", doc.InstanceInfo)
}

// fromDC2 is what the servers of datacenter dc2 send.
var fromDC2 = registry.Origin{Kind: registry.RemoteDC, DC: "dc2"}

// remote registers ORDERS/i1 as an instance of dc2; heard, of which the link's contact is noted too.
func (n *bubbled) remote(t *testing.T, heard bool) {
	t.Helper()
	ops := []registry.Op{registry.Replica{Instance: newInstance("ORDERS", "i1"), Life: 1}}
	if heard {
		ops = append([]registry.Op{registry.Contact{DC: "dc2", Cut: 15_000}}, ops...)
	}
	need.Got(n.Apply(context.Background(), fromDC2, ops...))(t)
}

// cutPolicy is a status of the peer dc2.
func cutPolicy(onCut string) string {
	return `{"peers":[{"name":"dc3","incoming":{"on_cut":"expire"}},{"name":"dc2","incoming":{"on_cut":"` + onCut + `"}}]}`
}

// Leases are 90 s; those of other datacenters get 30 s more.
func TestInstanceOfAnotherDatacenterIsShownWithItsOwner(t *testing.T) {
	const known = "ORDERS/i1 is listed as UP."
	for _, row := range []struct {
		name    string
		heard   bool
		silent  time.Duration
		peers   httpd.Peers
		unheard int64
		says    string // the end of the summary
	}{
		{name: "of which nothing was heard", silent: 10 * time.Second, says: "It belongs to datacenter dc2, of which nothing was heard yet."},
		{name: "heard lately", heard: true, silent: 10 * time.Second, says: "at 2000-01-01 00:02:00 UTC. It belongs to datacenter dc2, last heard 10s ago."},
		{name: "its link is cut", heard: true, silent: 41 * time.Second, peers: &peers{status: cutPolicy("keep")}, unheard: 41_000,
			says: "It belongs to datacenter dc2, last heard 41s ago: while the link is cut its lease is kept (replication.on-cut: keep)."},
		{name: "kept beyond its time", heard: true, silent: time.Hour, peers: &peers{status: cutPolicy("keep")}, unheard: time.Hour.Milliseconds(),
			says: "at 2000-01-01 00:02:00 UTC. It belongs to datacenter dc2, last heard 1h ago: while the link is cut its lease is kept (replication.on-cut: keep)."},
		{name: "kept for a time", heard: true, silent: 2 * time.Minute, peers: &peers{status: cutPolicy("keep for 2m0s")}, unheard: 120_000,
			says: "while the link is cut its lease is kept (replication.on-cut: keep for 2m0s)."},
		{name: "kept for a time that has passed", heard: true, silent: 3 * time.Minute, peers: &peers{status: cutPolicy("keep for 2m0s")}, unheard: 180_000,
			says: "last heard 3m ago: the link is cut, and its lease ends all the same (replication.on-cut: keep for 2m0s). It goes with one of the next eviction rounds, each of which takes a part of the registry."},
		{name: "not kept", heard: true, silent: 41 * time.Second, peers: &peers{status: cutPolicy("expire")}, unheard: 41_000,
			says: "last heard 41s ago: the link is cut, and its lease ends all the same (replication.on-cut: expire)."},
		{name: "of what is a peer no more", heard: true, silent: 41 * time.Second, peers: &peers{status: `{"peers":[]}`}, unheard: 41_000,
			says: "It belongs to datacenter dc2, last heard 41s ago: the link is cut."},
		{name: "of a state that cannot be read", heard: true, silent: 41 * time.Second, peers: &peers{status: `[`}, unheard: 41_000,
			says: "last heard 41s ago: the link is cut."},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			n := newBubbled(t, httpd.Config{Peers: row.peers})
			n.remote(t, row.heard)
			time.Sleep(row.silent) // virtual
			e := n.explain(t, "i1")
			expect.That(t, strings.HasPrefix(e.Summary, known) && strings.HasSuffix(e.Summary, row.says), "it says %s\nwant the end %s", e.Summary, row.says)
			var shown []struct {
				Datacenter string
				Unheard    int64 `json:"unheard_ms"`
			}
			got := n.get(t, "/v1/rollcall/apps")
			err := json.Unmarshal([]byte(got.body), &shown)
			expect.That(t, err == nil && len(shown) == 1 && shown[0].Datacenter == "dc2" && shown[0].Unheard == row.unheard,
				"listed: %v, %s; want dc2, unheard for %d ms", err, got.body, row.unheard)
			page := n.get(t, "/ui/apps/ORDERS").body
			expect.That(t, strings.Contains(page, `title="belongs to datacenter dc2">dc2<`), "the dashboard does not say whose it is: %s", page)
		})
	}
}

func TestInstanceOfThisDatacenterIsShownWithoutAnOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{Datacenter: "dc1"})
		i := newInstance("ORDERS", "i1")
		i.Metadata = []registry.Pair{{Key: "zone", Value: "a"}}
		n.Perform(t, registry.Register{Instance: i})
		got := n.get(t, "/v1/rollcall/apps").body
		expect.That(t, !strings.Contains(got, "datacenter") && !strings.Contains(got, "unheard") && strings.Contains(got, `"metadata":{"zone":"a"}`),
			"listed: %s", got)
		e := n.explain(t, "i1")
		expect.That(t, !strings.Contains(e.Summary, "datacenter"), "it says %s", e.Summary)
		page := n.get(t, "/ui/apps/ORDERS").body
		expect.That(t, !strings.Contains(page, "belongs to") && strings.Contains(page, "in <b>dc1</b>"),
			"the dashboard names an owner, or not the node's datacenter: %s", page)
	})
}
