package httpd_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const i1Path = "/v1/rollcall/apps/orders/i1"

func TestAnOverrideOfAnOperatorEndsAndTheInstanceIsWhatItSays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
		got, err := n.ask(t, request("PUT", i1Path+"/override?value=OUT_OF_SERVICE&for=10s&author=ops&reason=deploy", "{}"))
		want := `{"app":"ORDERS","id":"i1","index":"test-2"}` + "\n"
		expect.That(t, err == nil && got.status == 200 && got.body == want && got.header.Get("X-Rollcall-Index") == "test-2",
			"got %+v, %v, want %s", got, err, want)
		e := n.explain(t, "i1")
		expect.That(t, e.Status == "OUT_OF_SERVICE" && e.Override.Author == "ops" && e.Override.Reason == "deploy", "got %+v", e)
		time.Sleep(11 * time.Second)
		n.Lead()
		e = n.explain(t, "i1")
		expect.That(t, e.Status == "UP" && e.Override == nil, "after its end: %+v", e)
	})
}

func TestActsChangeWhatTheySay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
		for i, row := range []struct {
			name, method, path string
			index              int
			state, status      string
		}{
			{"an override without end", "PUT", "/override?value=DOWN&author=ops", 2, "listed", "DOWN"},
			{"the same again changes nothing", "PUT", "/override?value=DOWN&author=ops", 2, "listed", "DOWN"},
			{"the end of the override", "DELETE", "/override?value=UP", 3, "listed", "UP"},
			{"no override to end", "DELETE", "/override", 3, "listed", "UP"},
			{"a quarantine", "PUT", "/quarantine?for=168h", 4, "quarantined", "UP"},
			{"its end", "DELETE", "/quarantine", 5, "listed", "UP"},
			{"no quarantine to end", "DELETE", "/quarantine", 5, "listed", "UP"},
			{"an override without a status to fall back to", "PUT", "/override?value=DOWN", 6, "listed", "DOWN"},
			{"its end, without one", "DELETE", "/override", 7, "listed", "UNKNOWN"},
		} {
			got, err := n.ask(t, request(row.method, i1Path+row.path, ""))
			want := fmt.Sprintf(`"index":"test-%d"`, row.index)
			expect.That(t, err == nil && got.status == 200 && strings.Contains(got.body, want),
				"%d, %s: got %d %s, %v, want %s", i, row.name, got.status, got.body, err, want)
			e := n.explain(t, "i1")
			expect.That(t, e.State == row.state && e.Status == row.status,
				"%d, %s: it is %s %s, want %s %s", i, row.name, e.State, e.Status, row.state, row.status)
		}
	})
}

func TestAnActWithoutAnAuthorNamesTheCaller(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
	n.send(t, request("PUT", i1Path+"/override?value=DOWN", ""))
	l, _ := n.Newest().Find(keyOf("i1"))
	expect.That(t, l.Override.By.Author == "from 127.0.0.1", "the author is %q", l.Override.By.Author)
}

func TestBadActsAreRefusedAndChangeNothing(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
	preservation := "/v1/rollcall/self-preservation"
	for _, row := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{name: "no status", method: "PUT", path: i1Path + "/override", status: 400, says: "value must be"},
		{name: "a wrong status", method: "PUT", path: i1Path + "/override?value=up", status: 400, says: "value must be"},
		{name: "a wrong fallback", method: "DELETE", path: i1Path + "/override?value=x", status: 400, says: "value must be"},
		{name: "too short", method: "PUT", path: i1Path + "/override?value=UP&for=999ms", status: 400, says: "1s to 168h"},
		{name: "too long", method: "PUT", path: i1Path + "/override?value=UP&for=168h1s", status: 400, says: "1s to 168h"},
		{name: "negative", method: "PUT", path: i1Path + "/quarantine?for=-1s", status: 400, says: "1s to 168h"},
		{name: "a quarantine without end", method: "PUT", path: i1Path + "/quarantine", status: 400, says: "1s to 168h"},
		{name: "a hold without end", method: "POST", path: preservation + "/hold", status: 400, says: "1s to 168h"},
		{name: "an empty for", method: "POST", path: preservation + "/hold?for=", status: 400, says: "1s to 168h"},
		{name: "a long author", method: "PUT", path: i1Path + "/override?value=UP&author=" + strings.Repeat("a", 129), status: 400, says: "author has 129 bytes"},
		{name: "a long reason", method: "PUT", path: i1Path + "/quarantine?for=1m&reason=" + strings.Repeat("a", 513), status: 400, says: "reason has 513 bytes"},
		{name: "a control character", method: "DELETE", path: i1Path + "/quarantine?reason=a%0ab", status: 400, says: "control characters"},
		{name: "not UTF-8", method: "POST", path: preservation + "/hold?for=1m&author=%ff", status: 400, says: "UTF-8"},
		{name: "an unknown instance", method: "PUT", path: "/v1/rollcall/apps/ORDERS/i2/override?value=UP", status: 404, says: "ORDERS/i2 is not registered"},
		{name: "no override of an unknown one", method: "DELETE", path: "/v1/rollcall/apps/ORDERS/i2/override", status: 404, says: "not registered"},
		{name: "quarantine of an unknown one", method: "PUT", path: "/v1/rollcall/apps/ORDERS/i2/quarantine?for=1m", status: 404, says: "not registered"},
		{name: "a large body", method: "PUT", path: i1Path + "/override?value=DOWN", body: strings.Repeat("a", 65<<10), status: 413},
		{name: "a large body of a hold", method: "POST", path: preservation + "/hold?for=1m", body: strings.Repeat("a", 65<<10), status: 413},
		{name: "another method", method: "POST", path: i1Path + "/override?value=DOWN", status: 405},
		{name: "another method of a hold", method: "PUT", path: preservation + "/hold?for=1m", status: 405},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := n.Newest().Index()
			got := n.send(t, request(row.method, row.path, row.body))
			var doc struct{ Error string }
			err := json.Unmarshal([]byte(got.body), &doc)
			expect.That(t, err == nil && got.status == row.status && strings.Contains(doc.Error, row.says),
				"got %d %s, want %d %q", got.status, got.body, row.status, row.says)
			if v := n.Newest(); v.Index() != before || v.Preservation().State != registry.PreservationOff {
				t.Errorf("it changed something: %d to %d, %v", before, v.Index(), v.Preservation().State)
			}
		})
	}
}

func TestAFailedActSaysWhetherAnythingWasDone(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
	for _, path := range []string{i1Path + "/quarantine?for=1m", i1Path + "/override?value=DOWN"} {
		n.Fail(registry.ErrNoLeader)
		got := n.send(t, request("PUT", path, ""))
		expect.That(t, got.status == 503 && got.header.Get("Retry-After") != "", "%s without a leader: got %d %s", path, got.status, got.body)
		n.Fail(registry.ErrUnknownOutcome)
		got = n.send(t, request("PUT", path, ""))
		expect.That(t, got.status == 504 && got.header.Get("X-Rollcall-Outcome") == "unknown",
			"%s with an unknown outcome: got %d %s", path, got.status, got.body)
	}
}

// An operator's act is never taken for something that another server did before.
func TestActsAreTheOwnServersWhateverTheHeaderSays(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := newNode(t, httpd.Config{Metrics: metrics}, nil)
	n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
	peer := "x-netflix-discovery-replication: true"
	n.send(t, request("PUT", i1Path+"/override?value=DOWN", "", peer))
	n.send(t, request("PUT", i1Path+"/quarantine?for=1m", "", peer))
	n.send(t, request("POST", "/v1/rollcall/self-preservation/hold?for=1m", "", peer))
	for _, action := range []string{"status", "quarantine", "self_preservation"} {
		labels := map[string]string{"action": action, "origin": "client", "outcome": "done"}
		expect.Equal(t, gathered(t, metrics, "rollcall_registry_operations_total", labels), 1, "%v: got", labels)
	}
}

func TestTheQuarantinedAreListedOnlyWhenAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		now := time.Now().UnixMilli()
		for _, app := range []string{"A", "B"} {
			for _, id := range []string{"1", "2", "3"} {
				n.Perform(t, registry.Register{Instance: newInstance(app, id)})
			}
			n.Perform(t, registry.Quarantine{Key: registry.NewKey(app, "2"), For: 60_000, By: ops})
		}
		n.Perform(t, registry.SetOverride{Key: registry.NewKey("A", "1"), Status: registry.Down, For: 30_000, By: ops})
		for query, want := range map[string]string{
			"": "A/1 A/3 B/1 B/3", "?quarantined=false": "A/1 A/3 B/1 B/3", "?quarantined=true": "A/1 A/2 A/3 B/1 B/2 B/3",
			"?app=b": "B/1 B/3", "?app=b&quarantined=true": "B/1 B/2 B/3",
		} {
			var listed []struct {
				App, ID  string
				Until    int64 `json:"quarantined_until"`
				Override *struct {
					Author, Reason, Status string
					Since, Until           int64
				}
			}
			got := n.get(t, "/v1/rollcall/apps"+query)
			need.OK(t, json.Unmarshal([]byte(got.body), &listed))
			var names []string
			for _, i := range listed {
				names = append(names, i.App+"/"+i.ID)
				hidden := i.ID == "2"
				expect.That(t, hidden == (i.Until == now+60_000), "%q: %s/%s is quarantined until %d", query, i.App, i.ID, i.Until)
				forced := i.App+i.ID == "A1"
				expect.That(t, forced == (i.Override != nil), "%q: the override of %s/%s is %v", query, i.App, i.ID, i.Override)
				if o := i.Override; o != nil && (o.Author != "ops" || o.Reason != "deploy 12" || o.Status != "DOWN" || o.Since != now || o.Until != now+30_000) {
					t.Errorf("%q: the override is %+v", query, o)
				}
			}
			expect.Equal(t, strings.Join(names, " "), want, "%q: got", query)
		}
		expect.Equal(t, n.get(t, "/v1/rollcall/apps?quarantined=1").status, 400, "quarantined=1: got")
	})
}

// Quarantined instances count against the limits, and may register again where they are reached.
func TestTheQuarantinedCountAsInstances(t *testing.T) {
	n := newNode(t, httpd.Config{Limits: httpd.Limits{InstancesTotal: 1}}, nil)
	n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")}, registry.Quarantine{Key: keyOf("i1"), For: 60_000, By: ops})
	got := n.send(t, register(instanceJSON))
	expect.That(t, got.status == 204, "the quarantined one: got %d %s", got.status, got.body)
	expect.Equal(t, n.send(t, register(strings.ReplaceAll(instanceJSON, `"i1"`, `"i2"`))).status, 507, "another one: got")
}
