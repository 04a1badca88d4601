package httpd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestStatusShowsTheCluster(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Cluster: httpdtest.ThreeNodes, Node: "n1", Datacenter: "dc1", Version: "v1"}, nil)
	want := `{"node":"n1","datacenter":"dc1","version":"v1","mode":"cp","cluster_id":"c1","leader":"n2","term":7,"ready":true,"quorum":true,"condition":"","summary":"","nodes":[` +
		`{"id":"n1","http":"127.0.0.1:8761","cluster":"127.0.0.1:7761","role":"follower","applied":41,"voter":false},` +
		`{"id":"n2","http":"127.0.0.1:8762","cluster":"127.0.0.1:7762","role":"leader","applied":42,"index":"c1-17","voter":false},` +
		`{"id":"n3","http":"","cluster":"127.0.0.1:7763","role":"unreachable","applied":0,"voter":false}]}` + "\n"
	expect.Equal(t, n.Send(t, httpdtest.Request("GET", "/v1/rollcall/status", "")).Body, want, "got")
}

func TestStatusOfANodeWithoutAClusterHasNoNodes(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Node: "n1"}, nil)
	got := n.Send(t, httpdtest.Request("GET", "/v1/rollcall/status", ""))
	expect.That(t, strings.Contains(got.Body, `"nodes":[]`), "got %s, want an empty list of nodes", got.Body)
}

func TestInstanceListHasEveryInstance(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	instance := httpdtest.NewInstance("ORDERS", "i1")
	instance.Duration, instance.RenewalInterval = 30, 10
	n.Perform(t, registry.Register{Instance: instance}, registry.Register{Instance: httpdtest.NewInstance("PAY", "p1")},
		registry.SetOverride{Key: instance.Key(), Status: registry.OutOfService})
	list := func(query string) []map[string]any {
		var instances []map[string]any
		got := n.Send(t, httpdtest.Request("GET", "/v1/rollcall/apps"+query, ""))
		need.OKf(t, json.Unmarshal([]byte(got.Body), &instances), "%s: in %s", query, got.Body)
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
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("A", "1")}, registry.Register{Instance: httpdtest.NewInstance("A", "2")}, registry.Cancel{Key: registry.NewKey("A", "1")})
	var events struct{ Registered, Canceled []struct{ App, ID string } }
	need.OK(t, json.Unmarshal([]byte(n.Send(t, httpdtest.Request("GET", "/v1/rollcall/events", "")).Body), &events))
	expect.That(t, len(events.Registered) == 2 && events.Registered[0].ID == "2" && events.Registered[1].ID == "1", "registered: %+v", events.Registered)
	expect.That(t, len(events.Canceled) == 1 && events.Canceled[0].ID == "1" && events.Canceled[0].App == "A", "canceled: %+v", events.Canceled)
}

func TestOwnErrorsAreJSON(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	for path, want := range map[string]int{
		"/v1/rollcall/apps?consistency=eventual": 400, "/v1/rollcall/nothing": 404, "/v1/rollcall/%00": 400,
		"/v1/rollcall/apps?" + strings.Repeat("a&", 40): 400, "/v1/rollcall/apps?app=%zz": 400,
	} {
		got := n.Send(t, httpdtest.Request("GET", path, ""))
		var doc struct{ Error string }
		err := json.Unmarshal([]byte(got.Body), &doc)
		expect.That(t, err == nil && doc.Error != "" && got.Status == want,
			"GET %s: got %d %q, want %d and an error in JSON", path, got.Status, got.Body, want)
		expect.Equal(t, got.Header.Get("Content-Type"), "application/json", "GET %s: Content-Type is", path)
	}
	n.Send(t, httpdtest.Request("POST", "/v1/rollcall/apps", "")).Says(t, 405, "", "POST").With(t, "Allow", "GET, HEAD")
}

func TestEurekaStatusListsTheReplicas(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Cluster: httpdtest.ThreeNodes, Node: "n1"}, nil)
	var doc struct {
		ApplicationStats map[string]string
		InstanceInfo     struct {
			HostName string
			Port     map[string]any
		}
	}
	need.OK(t, json.Unmarshal([]byte(n.Send(t, httpdtest.Request("GET", "/eureka/status", "", "Accept: application/json")).Body), &doc))
	for key, want := range map[string]string{
		"registered-replicas":  "http://127.0.0.1:8762/eureka/, http://n3/eureka/",
		"available-replicas":   "http://127.0.0.1:8762/eureka/,",
		"unavailable-replicas": "http://n3/eureka/,",
	} {
		expect.Equal(t, doc.ApplicationStats[key], want, "%s is", key)
	}
	expect.That(t, doc.InstanceInfo.HostName == "127.0.0.1" && doc.InstanceInfo.Port["$"] == 8761.0, "the node's own instance is at %v", doc.InstanceInfo)
}

// cutPolicy returns a status of the peer dc2.
func cutPolicy(onCut string) string {
	return `{"peers":[{"name":"dc3","incoming":{"on_cut":"expire"}},{"name":"dc2","incoming":{"on_cut":"` + onCut + `"}}]}`
}

// Leases last 90 s; those of other datacenters get 30 s more.
func TestInstanceOfAnotherDatacenterIsShownWithItsOwner(t *testing.T) {
	const known = "ORDERS/i1 is listed as UP."
	for _, row := range []struct {
		name    string
		heard   bool
		silent  time.Duration
		peers   own.Peers
		unheard int64
		says    string // the end of the summary
	}{
		{name: "of which nothing was heard", silent: 10 * time.Second, says: "It belongs to datacenter dc2, of which nothing was heard yet."},
		{name: "heard lately", heard: true, silent: 10 * time.Second, says: "at 2000-01-01 00:02:00 UTC. It belongs to datacenter dc2, last heard 10s ago."},
		{name: "its link is cut", heard: true, silent: 41 * time.Second, peers: &httpdtest.FakePeers{StatusJSON: cutPolicy("keep")}, unheard: 41_000,
			says: "It belongs to datacenter dc2, last heard 41s ago: while the link is cut its lease is kept (replication.on-cut: keep)."},
		{name: "kept beyond its time", heard: true, silent: time.Hour, peers: &httpdtest.FakePeers{StatusJSON: cutPolicy("keep")}, unheard: time.Hour.Milliseconds(),
			says: "at 2000-01-01 00:02:00 UTC. It belongs to datacenter dc2, last heard 1h ago: while the link is cut its lease is kept (replication.on-cut: keep)."},
		{name: "kept for a time", heard: true, silent: 2 * time.Minute, peers: &httpdtest.FakePeers{StatusJSON: cutPolicy("keep for 2m0s")}, unheard: 120_000,
			says: "while the link is cut its lease is kept (replication.on-cut: keep for 2m0s)."},
		{name: "kept for a time that has passed", heard: true, silent: 3 * time.Minute, peers: &httpdtest.FakePeers{StatusJSON: cutPolicy("keep for 2m0s")}, unheard: 180_000,
			says: "last heard 3m ago: the link is cut, and its lease ends all the same (replication.on-cut: keep for 2m0s). It goes with one of the next eviction rounds, each of which takes a part of the registry."},
		{name: "not kept", heard: true, silent: 41 * time.Second, peers: &httpdtest.FakePeers{StatusJSON: cutPolicy("expire")}, unheard: 41_000,
			says: "last heard 41s ago: the link is cut, and its lease ends all the same (replication.on-cut: expire)."},
		{name: "of what is a peer no more", heard: true, silent: 41 * time.Second, peers: &httpdtest.FakePeers{StatusJSON: `{"peers":[]}`}, unheard: 41_000,
			says: "It belongs to datacenter dc2, last heard 41s ago: the link is cut."},
		{name: "of a state that cannot be read", heard: true, silent: 41 * time.Second, peers: &httpdtest.FakePeers{StatusJSON: `[`}, unheard: 41_000,
			says: "last heard 41s ago: the link is cut."},
	} {
		httpdtest.InBubble(t, row.name, func(t *testing.T) {
			n := httpdtest.NewBubbled(t, httpd.Config{Peers: row.peers})
			n.Remote(t, row.heard)
			time.Sleep(row.silent) // virtual
			e := n.Explain(t, "i1")
			expect.That(t, strings.HasPrefix(e.Summary, known) && strings.HasSuffix(e.Summary, row.says), "it says %s\nwant the end %s", e.Summary, row.says)
			var shown []struct {
				Datacenter string
				Unheard    int64 `json:"unheard_ms"`
			}
			got := n.Get(t, "/v1/rollcall/apps")
			err := json.Unmarshal([]byte(got.Body), &shown)
			expect.That(t, err == nil && len(shown) == 1 && shown[0].Datacenter == "dc2" && shown[0].Unheard == row.unheard,
				"listed: %v, %s; want dc2, unheard for %d ms", err, got.Body, row.unheard)
			page := n.Get(t, "/ui/apps/ORDERS").Body
			expect.That(t, strings.Contains(page, `title="belongs to datacenter dc2">dc2<`), "the dashboard does not say whose it is: %s", page)
		})
	}
}

func TestInstanceOfThisDatacenterIsShownWithoutAnOwner(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{Datacenter: "dc1"})
		i := httpdtest.NewInstance("ORDERS", "i1")
		i.Metadata = []registry.Pair{{Key: "zone", Value: "a"}}
		n.Perform(t, registry.Register{Instance: i})
		got := n.Get(t, "/v1/rollcall/apps").Body
		expect.That(t, !strings.Contains(got, "datacenter") && !strings.Contains(got, "unheard") && strings.Contains(got, `"metadata":{"zone":"a"}`),
			"listed: %s", got)
		e := n.Explain(t, "i1")
		expect.That(t, !strings.Contains(e.Summary, "datacenter"), "it says %s", e.Summary)
		page := n.Get(t, "/ui/apps/ORDERS").Body
		expect.That(t, !strings.Contains(page, "belongs to") && strings.Contains(page, "in <b>dc1</b>"),
			"the dashboard names an owner, or not the node's datacenter: %s", page)
	})
}

// readRow is a row of the table of routes in docs/reference/reads.md.
var readRow = regexp.MustCompile("(?m)^\\| `GET (/[^`]*)` \\| (the state|this node|people) \\|")

// shownByRoutes returns what each reading route shows, according to the page.
func shownByRoutes(t *testing.T) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for _, m := range readRow.FindAllStringSubmatch(string(need.Got(os.ReadFile("../docs/reference/reads.md"))(t)), -1) {
		rows[m[1]] = m[2]
	}
	return rows
}

// lifePhase is how much a node knows of the others, and which reads it then refuses.
type lifePhase struct {
	name   string
	health registry.Health
	view   error // error of reads that are not stale
	stale  bool  // whether stale reads are refused, too
}

var lifePhases = []lifePhase{
	{name: "following", health: registry.Health{Ready: true, Quorum: true}},
	{name: "no leader heard", health: registry.Health{Unheard: true}, view: registry.ErrNoLeader, stale: true},
	{name: "replaying", health: registry.Health{Unheard: true, Quorum: true}, view: registry.ErrNoLeader, stale: true},
	{name: "leader lost", health: registry.Health{Ready: true}, view: registry.ErrNoLeader},
	{name: "stopping", health: registry.Health{Ready: true, Quorum: true}, view: registry.ErrClosed},
}

// freshness returns the ways to ask a route for a fresh response, and whether the response may then be stale.
func freshness(path string) map[string]bool {
	switch {
	case strings.HasPrefix(path, "/v1/rollcall/fence/"):
		return map[string]bool{"index=1": false}
	case strings.HasPrefix(path, "/v1/rollcall/auth/test"): // there is no such token
		return map[string]bool{"accessor=x&need=app+x+read": false}
	case path == "/v1/rollcall/auth/roles", path == "/v1/rollcall/auth/tokens":
		return map[string]bool{"": true}
	case path == "/v1/rollcall/auth/roles/{name}":
		return map[string]bool{"": false}
	case web.FormOfPath(path) == web.ConsulForm:
		return map[string]bool{"": false, "stale": true, "consistent": false, "max_stale=87600h": true}
	}
	return map[string]bool{"": false, "consistency=stale": true, "consistency=linearizable": false, "consistency=leader": false}
}

// ask sends a read through the socket in the data directory.
func (p lifePhase) ask(n *httpdtest.Bubbled, target string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	w := httptest.NewRecorder()
	n.Handler.ServeHTTP(w, r.WithContext(web.AsAdministrator(r.Context())))
	return w
}

// refused reports whether a response reports a missing leader, in its API's form.
func (p lifePhase) refused(path string, got *httptest.ResponseRecorder) bool {
	switch {
	case web.FormOfPath(path) == web.ConsulForm:
		return got.Code == http.StatusInternalServerError && (got.Body.String() == "No cluster leader" || p.view == registry.ErrClosed)
	case got.Code == http.StatusForbidden: // as a published server that is not ready does
		return strings.HasPrefix(path, "/eureka/") && !p.health.Ready
	}
	return got.Code == http.StatusServiceUnavailable && got.Header().Get("Retry-After") == "1"
}

func TestEachReadInEachPhaseSaysWhatThePageSays(t *testing.T) {
	shown := shownByRoutes(t)
	for _, p := range lifePhases {
		t.Run(p.name, func(t *testing.T) {
			httpdtest.Bubble(t, func(t *testing.T) {
				m := fsmtest.New()
				l := fsmtest.NewCoordination(m)
				n := httpdtest.NewBubbled(t, httpd.Config{Service: m, Coordination: l, Agents: consul.OneAgent, Access: web.AccessConfig{Table: l.AccessTable}})
				m.Set(func(m *fsmtest.Memory) { m.Reported, m.ViewErr, l.ViewErr = p.health, p.view, p.view })
				for _, route := range n.Handler.Routes(t) {
					method, path, _ := strings.Cut(route, " ")
					if method != http.MethodGet || strings.HasPrefix(path, "/v1/agent/check/") { // heartbeats
						continue
					}
					what, listed := shown[path]
					expect.That(t, listed, "docs/reference/reads.md lacks GET %s", path)
					if what == "the state" && path != "/v1/rollcall/snapshot" {
						p.reads(t, n, path)
					}
				}
			})
		})
	}
}

// reads asks one route in all ways.
func (p lifePhase) reads(t *testing.T, n *httpdtest.Bubbled, path string) {
	t.Helper()
	target := strings.NewReplacer("{state}", "any", "{node}", "rollcall").Replace(path)
	target = regexp.MustCompile(`{\w+}`).ReplaceAllString(target, "x") + "?wait=1ms&"
	for words, stale := range freshness(path) {
		got := p.ask(n, target+words)
		expect.Equal(t, p.refused(path, got), p.view != nil && (!stale || p.stale), "GET %s%s is refused: %d %s", target, words, got.Code, got.Body)
		if !stale || !p.stale {
			continue
		}
		got = p.ask(n, target+words+"&unheard=true")
		expect.That(t, !p.refused(path, got) && got.Header().Get("X-Rollcall-Unheard") == "true",
			"GET %s%s with unheard: %d %s, marked %q", target, words, got.Code, got.Body, got.Header().Get("X-Rollcall-Unheard"))
	}
}

func TestUnheardIsRefusedToOthersThanTheAdministrator(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Set(func(m *fsmtest.Memory) { m.Reported = registry.Health{Unheard: true} })
	got := n.Call(t, http.MethodGet, "/v1/rollcall/apps?consistency=stale&unheard=true", "")
	expect.That(t, got.Status == http.StatusBadRequest && strings.Contains(got.Body, "admin.sock"), "got %d %s", got.Status, got.Body)
}

func TestMetricsCountOperationsByActionOriginAndOutcome(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := httpdtest.NewNode(t, httpd.Config{Metrics: metrics}, nil)
	peer := "x-netflix-discovery-replication: true"
	for _, r := range []string{
		httpdtest.Register(httpdtest.InstanceJSON), httpdtest.Register(httpdtest.InstanceJSON, peer),
		httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", ""), httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", "", peer), httpdtest.Request("PUT", "/eureka/apps/ORDERS/i2", ""),
		httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1/status?value=DOWN", ""), httpdtest.Request("DELETE", "/eureka/apps/ORDERS/i1/status", ""),
		httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1/metadata?a=b", ""),
		httpdtest.Request("DELETE", "/eureka/apps/ORDERS/i1", ""), httpdtest.Request("DELETE", "/eureka/apps/ORDERS/i1", ""),
		httpdtest.Request("POST", "/eureka/peerreplication/batch", `{"replicationList":[{"appName":"A","id":"1","action":"Cancel"},{"appName":"A","id":"1","action":"Heartbeat"}]}`),
	} {
		n.Send(t, r)
	}
	for _, row := range []struct {
		action, origin, outcome string
		want                    float64
	}{
		{"register", "client", "done", 1}, {"register", "replication", "done", 1},
		{"renew", "client", "done", 1}, {"renew", "replication", "done", 1}, {"renew", "client", "not_found", 1}, {"renew", "replication", "not_found", 1},
		{"status", "client", "done", 1}, {"status_delete", "client", "done", 1}, {"metadata", "client", "done", 1},
		{"cancel", "client", "done", 1}, {"cancel", "client", "not_found", 1}, {"cancel", "replication", "not_found", 1},
	} {
		labels := map[string]string{"action": row.action, "origin": row.origin, "outcome": row.outcome}
		expect.Equal(t, httpdtest.Gathered(t, metrics, "rollcall_registry_operations_total", labels), row.want, "%v: got", labels)
	}
}

func TestMetricsCountFailedOperationsByTheirError(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := httpdtest.NewNode(t, httpd.Config{Metrics: metrics}, nil)
	for outcome, err := range map[string]error{"unknown": registry.ErrUnknownOutcome, "no_leader": registry.ErrNoLeader, "error": registry.ErrClosed} {
		n.Set(func(m *fsmtest.Memory) { m.ApplyErr = err })
		n.Send(t, httpdtest.Request("PUT", "/eureka/apps/A/1", ""))
		n.Send(t, httpdtest.Request("DELETE", "/eureka/apps/A/1", ""))
		for _, action := range []string{"renew", "cancel"} {
			labels := map[string]string{"action": action, "origin": "client", "outcome": outcome}
			expect.Equal(t, httpdtest.Gathered(t, metrics, "rollcall_registry_operations_total", labels), 1, "%v: got", labels)
		}
	}
}

func TestMetricsCountRequestsByRouteTemplate(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := httpdtest.NewNode(t, httpd.Config{Metrics: metrics}, nil)
	for _, r := range []string{
		httpdtest.Request("PUT", "/eureka/apps/A/1", ""), httpdtest.Request("PUT", "/v2/apps/A/2/", ""), httpdtest.Request("GET", "/eureka/apps/A", ""),
		httpdtest.Request("GET", "/no/such/path", ""), httpdtest.Request("BREW", "/eureka/apps", ""), httpdtest.Request("GET", "/v1/rollcall/status", ""),
	} {
		n.Send(t, r)
	}
	for _, row := range []struct {
		route, method, code string
		want                float64
	}{
		{"{base}/apps/{app}/{id}", "PUT", "404", 2},
		{"{base}/apps/{app}", "GET", "404", 1},
		{"none", "GET", "404", 1},
		{"none", "other", "405", 1},
		{"/v1/rollcall/status", "GET", "200", 1},
	} {
		labels := map[string]string{"route": row.route, "method": row.method, "code": row.code}
		expect.Equal(t, httpdtest.Gathered(t, metrics, "rollcall_http_requests_total", labels), row.want, "%v: got", labels)
		delete(labels, "code")
		expect.Equal(t, httpdtest.Gathered(t, metrics, "rollcall_http_request_duration_seconds", labels), row.want, "durations of %v: got", labels)
	}
}

func TestMetricsCountInstancesByStatus(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := httpdtest.NewNode(t, httpd.Config{Metrics: metrics}, nil)
	for id, status := range map[string]registry.Status{"1": registry.Up, "2": registry.Up, "3": registry.OutOfService} {
		instance := httpdtest.NewInstance("A", id)
		instance.Status = status
		n.Perform(t, registry.Register{Instance: instance})
	}
	want := map[registry.Status]float64{registry.Up: 2, registry.OutOfService: 1}
	for _, status := range registry.Statuses() {
		expect.Equal(t, httpdtest.Gathered(t, metrics, "rollcall_registry_instances", map[string]string{"status": status.String()}), want[status], "%s: got", status)
	}
}

func TestMetricsAreExposed(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Send(t, httpdtest.Request("PUT", "/eureka/apps/A/1", ""))
	n.Send(t, httpdtest.Request("GET", "/metrics", "")).Says(t, http.StatusOK, `rollcall_registry_operations_total{action="renew",origin="client",outcome="not_found"} 1`, "it")
}

// appInstances returns the series of rollcall_registry_app_instances.
func appInstances(t *testing.T, metrics *prometheus.Registry) map[string]float64 {
	t.Helper()
	series := map[string]float64{}
	for _, f := range need.Got(metrics.Gather())(t) {
		if f.GetName() != "rollcall_registry_app_instances" {
			continue
		}
		for _, m := range f.GetMetric() {
			series[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
		}
	}
	return series
}

func TestMetricsShowTheInstancesOfTheLargestApplicationsAndOfTheOthersTogether(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := httpdtest.NewNode(t, httpd.Config{Metrics: metrics, MetricsApps: 2}, nil)
	add := func(app string, instances int, status registry.Status) {
		for i := range instances {
			n.Perform(t, registry.Register{Instance: &registry.Instance{InstanceID: fmt.Sprint(app, i), App: app, HostName: "h", Status: status, DataCenter: registry.DataCenter{Name: registry.MyOwn}}})
		}
	}
	add("LARGE", 3, registry.Up)
	add("DOWN", 2, registry.Down)
	expect.Deep(t, appInstances(t, metrics), map[string]float64{"LARGE UP": 3, "DOWN UP": 0, "DOWN DOWN": 2}, "two:")
	add("SMALL", 1, registry.Up)
	add("TINY", 1, registry.Starting)
	expect.Deep(t, appInstances(t, metrics), map[string]float64{"LARGE UP": 3, "DOWN UP": 0, "DOWN DOWN": 2, " UP": 1, " STARTING": 1}, "four:")
	cancel := func(i int) { n.Perform(t, registry.Cancel{Key: registry.NewKey("LARGE", fmt.Sprint("LARGE", i))}) }
	add("SMALL2", 2, registry.Up)
	cancel(0)
	cancel(1)
	expect.Deep(t, appInstances(t, metrics), map[string]float64{"LARGE UP": 1, "DOWN UP": 0, "DOWN DOWN": 2, "SMALL2 UP": 2, " UP": 1, " STARTING": 1}, "one has lost most, and is not among the largest:")
	cancel(2)
	expect.Deep(t, appInstances(t, metrics), map[string]float64{"LARGE UP": 0, "DOWN UP": 0, "DOWN DOWN": 2, "SMALL2 UP": 2, " UP": 1, " STARTING": 1}, "it has lost all:")
}

// TestConformance has heartbeats answered on taken-over connections, as a node does.
func TestConformance(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Node: "n1", Version: "test"}, nil)
	n.Set(func(m *fsmtest.Memory) { m.Registry.SetLevel(codec.Newest) })
	n.LeadAlways(t)
	httpdtest.RunSuite(t, httpdtest.Target{URL: "http://" + n.Addr, Consensus: true})
}

func TestConformanceWithoutConsensus(t *testing.T) {
	config := httpdtest.AloneConfig()
	config.Node, config.Version = "n1", "test"
	n := httpdtest.NewNode(t, config, nil)
	n.Set(func(m *fsmtest.Memory) { m.Alone = true; m.Registry.SetLevel(codec.Newest) })
	n.LeadAlways(t)
	httpdtest.RunSuite(t, httpdtest.Target{URL: "http://" + n.Addr})
}

// Every route of coordination, including future ones.
func TestWithoutConsensusCoordinationIsRefusedWithTheReason(t *testing.T) {
	h := need.Got(httpd.New(httpd.Config{Service: fsmtest.New(), WithoutConsensus: true}))(t)
	c := &httpdtest.Coordinated{Handler: h}
	asked := 0
	for _, route := range h.Routes(t) {
		method, path, _ := strings.Cut(route, " ")
		if !httpdtest.Coordinates(path) {
			continue
		}
		asked++
		got := c.Send(method, strings.NewReplacer("{", "x", "}", "").Replace(path), "")
		expect.That(t, got.Status == http.StatusNotImplemented && strings.Contains(got.Body, "mode cp") && strings.Contains(got.Body, "no lock could be exclusive"),
			"%s: got %d %q, want 501 and why", route, got.Status, got.Body)
	}
	expect.That(t, asked >= 30, "only %d routes were asked", asked)
	expect.Equal(t, c.Send("GET", "/v1/nothing", "").Status, http.StatusNotFound, "a path that there is not: got")
}
