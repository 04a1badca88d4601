package own_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

const i1Path = "/v1/rollcall/apps/orders/i1"

func TestActOverrideEndsAndTheInstanceHasItsReportedStatus(t *testing.T) {
	httpdtest.WithInstance(t, func(t *testing.T, n *httpdtest.Bubbled) {
		got, err := n.RoundTrip(t, httpdtest.Request("PUT", i1Path+"/override?value=OUT_OF_SERVICE&for=10s&author=ops&reason=deploy", "{}"))
		want := `{"app":"ORDERS","id":"i1","index":"test-2"}` + "\n"
		expect.That(t, err == nil && got.Status == 200 && got.Body == want && got.Header.Get("X-Rollcall-Index") == "test-2",
			"got %+v, %v, want %s", got, err, want)
		e := n.Explain(t, "i1")
		expect.That(t, e.Status == "OUT_OF_SERVICE" && e.Override.Author == "ops" && e.Override.Reason == "deploy", "got %+v", e)
		time.Sleep(11 * time.Second)
		n.Lead()
		e = n.Explain(t, "i1")
		expect.That(t, e.Status == "UP" && e.Override == nil, "after its end: %+v", e)
	})
}

func TestActChangesTheInstance(t *testing.T) {
	httpdtest.WithInstance(t, func(t *testing.T, n *httpdtest.Bubbled) {
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
			got, err := n.RoundTrip(t, httpdtest.Request(row.method, i1Path+row.path, ""))
			want := fmt.Sprintf(`"index":"test-%d"`, row.index)
			expect.That(t, err == nil && got.Status == 200 && strings.Contains(got.Body, want),
				"%d, %s: got %d %s, %v, want %s", i, row.name, got.Status, got.Body, err, want)
			e := n.Explain(t, "i1")
			expect.That(t, e.State == row.state && e.Status == row.status,
				"%d, %s: it is %s %s, want %s %s", i, row.name, e.State, e.Status, row.state, row.status)
		}
	})
}

func TestEndOfAnActThatIsNotThereSaysSo(t *testing.T) {
	for _, level := range []byte{codec.Oldest, codec.Newest} {
		n := httpdtest.NewNode(t, httpd.Config{}, nil)
		n.Set(func(m *fsmtest.Memory) { m.Registry.SetLevel(level) })
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		for _, act := range []struct{ name, set string }{{"override", "?value=OUT_OF_SERVICE"}, {"quarantine", "?for=1h"}} {
			path := i1Path + "/" + act.name
			for i, row := range []struct {
				method, query string
				removed       bool
				status        int
				says          string // without the index
			}{
				{"DELETE", "", false, 200, `"nothing":true`},
				{"PUT", act.set, false, 200, `"index"`},
				{"DELETE", "", false, 200, `"index"`},
				{"PUT", act.set, false, 200, `"index"`},
				{"DELETE", "", true, 200, `"index"`},
				{"DELETE", "", true, 404, "is not registered"},
			} {
				// instances that wait are only distinguished from the others by the rules of level 3
				if level == codec.Oldest && row.removed {
					break
				}
				if row.removed && row.status == 200 {
					n.Perform(t, registry.Cancel{Key: httpdtest.KeyOf("i1")})
				}
				got := n.Send(t, httpdtest.Request(row.method, path+row.query, ""))
				expect.That(t, got.Status == row.status && strings.Contains(got.Body, row.says) && strings.Contains(got.Body, "nothing") == (i == 0),
					"level %d, %s, step %d: got %d %s, want %d %s", level, act.name, i, got.Status, got.Body, row.status, row.says)
			}
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		}
	}
}

func TestActDrainIsExplained(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{})
		n.Set(func(m *fsmtest.Memory) { m.Registry.SetLevel(codec.Newest) })
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		for _, row := range []struct {
			query string
			drain bool
			says  string
		}{
			{"&drain=true", true, "by ops, until its client starts again"},
			{"", false, "OUT_OF_SERVICE is forced since"},
			{"&for=1h", false, "by ops, until 2"},
			{"&drain=true", true, "by ops, until its client starts again, but at least until 2"},
			{"", false, "OUT_OF_SERVICE is forced since"},
		} {
			need.OK(t, expect.Err(n.RoundTrip(t, httpdtest.Request("PUT", i1Path+"/override?value=OUT_OF_SERVICE&author=ops"+row.query, ""))))
			e := n.Explain(t, "i1")
			expect.That(t, e.Override != nil && e.Override.Drain == row.drain && strings.Contains(e.Summary, row.says), "%q: %+v", row.query, e)
		}
		n.Perform(t, registry.Cancel{Key: httpdtest.KeyOf("i1")})
		e := n.Explain(t, "i1")
		expect.That(t, e.Override != nil && strings.Contains(e.Summary, "it is OUT_OF_SERVICE, by ops"), "an override that waits: %+v", e)
	})
}

func TestActWithoutAnAuthorNamesTheCaller(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	n.Send(t, httpdtest.Request("PUT", i1Path+"/override?value=DOWN", ""))
	l, _ := n.Newest().Find(httpdtest.KeyOf("i1"))
	expect.That(t, l.Override.By.Author == "from 127.0.0.1", "the author is %q", l.Override.By.Author)
}

func TestActThatIsMalformedIsRefusedAndChangesNothing(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
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
		{name: "a drain to another status", method: "PUT", path: i1Path + "/override?value=DOWN&drain=true", status: 400, says: "drain is for OUT_OF_SERVICE"},
		{name: "a drain for a time", method: "PUT", path: i1Path + "/override?value=OUT_OF_SERVICE&drain=true&for=1m", status: 400, says: "without for"},
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
			got := n.Send(t, httpdtest.Request(row.method, row.path, row.body))
			var doc struct{ Error string }
			err := json.Unmarshal([]byte(got.Body), &doc)
			expect.That(t, err == nil && got.Status == row.status && strings.Contains(doc.Error, row.says),
				"got %d %s, want %d %q", got.Status, got.Body, row.status, row.says)
			v := n.Newest()
			expect.That(t, v.Index() == before && v.Preservation().State == registry.PreservationOff, "it changed something: %d to %d, %v", before, v.Index(), v.Preservation().State)
		})
	}
}

func TestActThatFailsSaysWhetherAnythingWasDone(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	for _, path := range []string{i1Path + "/quarantine?for=1m", i1Path + "/override?value=DOWN"} {
		n.Fail(registry.ErrNoLeader)
		got := n.Send(t, httpdtest.Request("PUT", path, ""))
		expect.That(t, got.Status == 503 && got.Header.Get("Retry-After") != "", "%s without a leader: got %d %s", path, got.Status, got.Body)
		n.Fail(registry.ErrUnknownOutcome)
		n.Send(t, httpdtest.Request("PUT", path, "")).Says(t, 504, "", "%s with an unknown outcome", path).With(t, "X-Rollcall-Outcome", "unknown")
	}
}

// An operator's act is never mistaken for an earlier one of another server.
func TestActBelongsToThisServerWhateverTheHeaderSays(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := httpdtest.NewNode(t, httpd.Config{Metrics: metrics}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	peer := "x-netflix-discovery-replication: true"
	n.Send(t, httpdtest.Request("PUT", i1Path+"/override?value=DOWN", "", peer))
	n.Send(t, httpdtest.Request("PUT", i1Path+"/quarantine?for=1m", "", peer))
	n.Send(t, httpdtest.Request("POST", "/v1/rollcall/self-preservation/hold?for=1m", "", peer))
	for _, action := range []string{"status", "quarantine", "self_preservation"} {
		labels := map[string]string{"action": action, "origin": "client", "outcome": "done"}
		expect.Equal(t, httpdtest.Gathered(t, metrics, "rollcall_registry_operations_total", labels), 1, "%v: got", labels)
	}
}

func TestQuarantinedInstancesAreListedOnlyWhenAskedFor(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		now := time.Now().UnixMilli()
		for _, app := range []string{"A", "B"} {
			for _, id := range []string{"1", "2", "3"} {
				n.Perform(t, registry.Register{Instance: httpdtest.NewInstance(app, id)})
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
			need.OK(t, json.Unmarshal([]byte(n.Get(t, "/v1/rollcall/apps"+query).Body), &listed))
			var names []string
			for _, i := range listed {
				names = append(names, i.App+"/"+i.ID)
				expect.Equal(t, i.ID == "2", i.Until == now+60_000, "%q: %s/%s is quarantined until %d:", query, i.App, i.ID, i.Until)
				expect.Equal(t, i.App+i.ID == "A1", i.Override != nil, "%q: the override of %s/%s is %v:", query, i.App, i.ID, i.Override)
				o := i.Override
				expect.That(t, o == nil || o.Author == "ops" && o.Reason == "deploy 12" && o.Status == "DOWN" && o.Since == now && o.Until == now+30_000, "%q: the override is %+v", query, o)
			}
			expect.Equal(t, strings.Join(names, " "), want, "%q: got", query)
		}
		expect.Equal(t, n.Get(t, "/v1/rollcall/apps?quarantined=1").Status, 400, "quarantined=1: got")
	})
}

// Quarantined instances count against the limits, and may register again once the limits are reached.
func TestQuarantinedInstancesCountForTheQuota(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Limits: web.Limits{InstancesTotal: 1}}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")}, registry.Quarantine{Key: httpdtest.KeyOf("i1"), For: 60_000, By: ops})
	n.Send(t, httpdtest.Register(httpdtest.InstanceJSON)).Says(t, 204, "", "the quarantined one")
	expect.Equal(t, n.Send(t, httpdtest.Register(strings.ReplaceAll(httpdtest.InstanceJSON, `"i1"`, `"i2"`))).Status, 507, "another one: got")
}

// fillForPruning registers instances in every state, through both APIs.
func fillForPruning(t *testing.T, n *httpdtest.Node) {
	t.Helper()
	n.Must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","ID":"w1","Check":{"TTL":"10s"}}`)
	n.Must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","ID":"w2","Check":{"TTL":"10s","Status":"warning"}}`)
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.9.0.1","Service":{"Service":"web","ID":"w1"},"Check":{"Name":"alive","Output":"no answer"}}`)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "o1")}, registry.Register{Instance: httpdtest.WithStatus(httpdtest.NewInstance("ORDERS", "o2"), registry.Down, 0)},
		registry.Register{Instance: httpdtest.WithStatus(httpdtest.NewInstance("ORDERS", "o3"), registry.Down, 0)},
		registry.Quarantine{Key: registry.NewKey("ORDERS", "o3"), For: 60_000})
}

const (
	prunedWeb = `{"app":"WEB","id":"far:w1","node":"far","status":"DOWN","reason":"check alive is critical: no answer"},` +
		`{"app":"WEB","id":"w1","status":"DOWN","reason":"check service:w1 is critical"}`
	prunedOrders = `{"app":"ORDERS","id":"o2","status":"DOWN","reason":"The status is DOWN"}`
)

func TestPruneRemovesInstancesThatAreNotPassing(t *testing.T) {
	for _, row := range []struct {
		query, removed string
		left           int
	}{
		{"?not-passing", "[" + prunedOrders + "," + prunedWeb + "]", 3},
		{"?not-passing=true&service=web", "[" + prunedWeb + "]", 4},
		{"?not-passing&service=Orders&dry-run=false", "[" + prunedOrders + "]", 5},
		{"?not-passing&service=none", "[]", 6},
		{"?not-passing&dry-run", "[" + prunedOrders + "," + prunedWeb + "]", 6},
	} {
		t.Run(row.query, func(t *testing.T) {
			n := httpdtest.NewCatalog(t)
			fillForPruning(t, n)
			got := n.Must(t, "POST", "/v1/rollcall/prune"+row.query, "")
			expect.That(t, got.Body == row.removed+"\n", "got  %s\nwant %s", got.Body, row.removed)
			left := n.Newest().Total()
			expect.That(t, left == row.left, "%d instances are left, want %d", left, row.left)
			if strings.Contains(row.query, "dry-run=false") || !strings.Contains(row.query, "dry-run") {
				again := n.Must(t, "POST", "/v1/rollcall/prune"+row.query, "")
				expect.That(t, again.Body == "[]\n", "again: got %s, want nothing more", again.Body)
			}
		})
	}
}

func TestPruneRemovesManyTogether(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	for i := range 250 {
		n.Perform(t, registry.Register{Instance: httpdtest.WithStatus(httpdtest.NewInstance("ORDERS", fmt.Sprint(i)), registry.Status(i%5), 0)})
	}
	before := n.Count()
	n.Must(t, "POST", "/v1/rollcall/prune?not-passing", "")
	left, writes := n.Newest().Total(), n.Count()-before
	expect.That(t, left == 50 && writes == 2, "%d instances are left after %d writes, want the 50 that are UP after 2", left, writes)
}

func TestPruneServesEveryMode(t *testing.T) {
	n := httpdtest.NewNode(t, httpdtest.AloneConfig(), nil)
	n.Set(func(m *fsmtest.Memory) { m.Alone = true })
	n.Perform(t, registry.Register{Instance: httpdtest.WithStatus(httpdtest.NewInstance("ORDERS", "o1"), registry.Starting, 0)})
	got := n.Must(t, "POST", "/v1/rollcall/prune?not-passing", "")
	expect.That(t, strings.Contains(got.Body, `"status":"STARTING"`) && n.Newest().Total() == 0, "got %s, want the instance removed", got.Body)
}

func TestPruneNeedsItsParameter(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	fillForPruning(t, n)
	for _, query := range []string{"", "?service=web", "?not-passing=false", "?not-passing=x", "?not-passing&dry-run=x", "?not-passing&service=%zz"} {
		got := n.Call(t, "POST", "/v1/rollcall/prune"+query, "")
		expect.That(t, got.Status == 400 && strings.HasPrefix(got.Body, `{"error":`),
			"%s: got %d %s, want 400 and an error in JSON", query, got.Status, got.Body)
	}
	expect.Equal(t, n.Call(t, "GET", "/v1/rollcall/prune?not-passing", "").Status, 405, "GET: got")
	n.Set(func(m *fsmtest.Memory) { m.ApplyErr = registry.ErrUnknownOutcome })
	n.Call(t, "POST", "/v1/rollcall/prune?not-passing", "").Says(t, 504, "", "an unknown outcome").With(t, "X-Rollcall-Outcome", "unknown")
	expect.Equal(t, n.Newest().Total(), 6, "instances are left:")
}

// members is an own.Members that gives every removal the same answer and remembers the names.
type members struct {
	err     error
	removed []string
}

// Verify implements own.Members.
func (m *members) Verify(context.Context) api.Verification {
	return api.Verification{Verdict: "differ", Sentence: "The replicas differ.", Index: 7, Nodes: []api.VerifiedNode{{ID: "n2", Index: 7, Digest: "0a", Differs: []string{"keys"}}}}
}

// Remove implements own.Members.
func (m *members) Remove(_ context.Context, name string) error {
	m.removed = append(m.removed, name)
	return m.err
}

// Transfer implements own.Members.
func (m *members) Transfer(_ context.Context, name string) (string, error) {
	m.removed = append(m.removed, name)
	return "n2", m.err
}

func TestLeadershipIsTransferredToTheNodeThatIsNamed(t *testing.T) {
	for query, to := range map[string]string{"": "", "?to=n2": "n2"} {
		m := &members{}
		got := httpdtest.NewNode(t, httpd.Config{Members: m}, nil).Send(t, httpdtest.Request("POST", "/v1/rollcall/transfer"+query, ""))
		expect.That(t, got.Status == 200 && got.Body == "{\"leader\":\"n2\"}\n" && len(m.removed) == 1 && m.removed[0] == to, "%q: got %d %s for %q", query, got.Status, got.Body, m.removed)
	}
	refused := fmt.Errorf("transfer: %w: n2 is 700 entries behind", own.ErrMembership)
	httpdtest.NewNode(t, httpd.Config{Members: &members{err: refused}}, nil).Send(t, httpdtest.Request("POST", "/v1/rollcall/transfer?to=n2", "")).Says(t, 503, "700 entries behind", "refused")
	expect.Equal(t, httpdtest.NewNode(t, httpd.Config{}, nil).Send(t, httpdtest.Request("POST", "/v1/rollcall/transfer", "")).Status, 501, "without members: got")
}

func TestMemberIsRemovedByItsName(t *testing.T) {
	for _, name := range []string{"n1", "rack-7_b", "a%2Fb"} {
		m := &members{}
		n := httpdtest.NewNode(t, httpd.Config{Members: m}, nil)
		got := n.Send(t, httpdtest.Request("DELETE", "/v1/rollcall/members/"+name, "{}"))
		plain := strings.ReplaceAll(name, "%2F", "/")
		want := fmt.Sprintf("{\"removed\":%q}\n", plain)
		expect.That(t, got.Status == 200 && got.Body == want, "%s: got %d %s, want 200 %s", name, got.Status, got.Body, want)
		expect.That(t, len(m.removed) == 1 && m.removed[0] == plain, "%s: removed %q, want it once", name, m.removed)
	}
}

func TestMemberRemovalThatFailsSaysWhetherAnythingWasDone(t *testing.T) {
	refused := fmt.Errorf("remove node \"n1\": %w: only n3 would be left", own.ErrMembership)
	for _, row := range []struct {
		name           string
		err            error
		status         int
		says           string
		outcome, retry string
	}{
		{name: "unknown node", err: fmt.Errorf("remove: %w", own.ErrUnknownMember), status: 404, says: `no node "n1"; GET /v1/rollcall/status lists`},
		{name: "refused", err: refused, status: 503, says: "only n3 would be left"},
		{name: "no leader", err: fmt.Errorf("remove: %w", registry.ErrNoLeader), status: 503, says: `node "n1" was not removed: no leader`, retry: "1"},
		{name: "shutting down", err: registry.ErrClosed, status: 503, says: "ask another one", retry: "1"},
		{name: "unknown outcome", err: registry.ErrUnknownOutcome, status: 504, says: "it is not known", outcome: "unknown"},
		{name: "refused, or not: not known", err: fmt.Errorf("%w: %w", refused, registry.ErrUnknownOutcome), status: 504, says: "it is not known", outcome: "unknown"},
		{name: "too late", err: context.DeadlineExceeded, status: 504, says: "it is not known", outcome: "unknown"},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := httpdtest.NewNode(t, httpd.Config{Members: &members{err: row.err}}, nil)
			got := n.Send(t, httpdtest.Request("DELETE", "/v1/rollcall/members/n1", ""))
			var doc struct{ Error string }
			expect.That(t, json.Unmarshal([]byte(got.Body), &doc) == nil && got.Status == row.status && strings.Contains(doc.Error, row.says), "got %d %s, want %d and an error in JSON with %q", got.Status, got.Body, row.status, row.says)
			expect.Equal(t, got.Header.Get("X-Rollcall-Outcome"), row.outcome, "X-Rollcall-Outcome is")
			expect.Equal(t, got.Header.Get("Retry-After"), row.retry, "Retry-After is")
		})
	}
}

func TestVerifySaysWhatWasFoundAndIsNotOfferedWithoutMembers(t *testing.T) {
	got := httpdtest.NewNode(t, httpd.Config{Members: &members{}}, nil).Call(t, "GET", "/v1/rollcall/verify", "")
	expect.That(t, got.Status == 200 && strings.Contains(got.Body, `"verdict":"differ"`) && strings.Contains(got.Body, `"differs":["keys"]`), "got %d %s", got.Status, got.Body)
	for path, method := range map[string]string{"verify": "GET", "members/n1": "DELETE"} {
		httpdtest.NewNode(t, httpd.Config{}, nil).Call(t, method, "/v1/rollcall/"+path, "").Says(t, 501, "mode cp", "%s without members", path)
	}
}

func TestSelfPreservationExplainsItself(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		midnight := time.Now().UnixMilli()
		p := n.Preservation(t, "GET", "")
		expect.That(t, p.State == "off" && p.Since == 0 && p.Until == 0 && p.Enabled && p.Threshold == 0.85 && p.Population == 10 && !p.Condition && p.Applications != nil && p.Transitions != nil && p.Clock == "running",
			"at first: %+v", p)
		n.Fleet(t, 20, 8, 2*time.Minute)
		p = n.Preservation(t, "GET", "")
		expect.That(t, p.State == "on" && p.Since == midnight+70_000 && p.Until == midnight+70_000+3_600_000 && p.Condition && p.Withheld == 12 && p.Author == "",
			"on: %+v", p)
		f := p.Figures
		expect.That(t, f.Leases == 20 && f.Counted == 20 && f.Fresh == 8 && f.Expired == 12, "figures: %+v", f)
		need.That(t, len(p.Applications) == 1 && p.Applications[0].App == "FLEET" && p.Applications[0].Expired == 12 && len(p.Applications[0].Overdue) == 12,
			"applications: %+v", p.Applications)
		o := p.Applications[0].Overdue[0]
		expect.That(t, o.ID != "" && o.Silent == 120_000 && o.Ends == -30_000, "overdue: %+v", o)
		expect.That(t, len(p.Transitions) == 1 && p.Transitions[0].State == "on" && p.Transitions[0].At == midnight+70_000 && p.Transitions[0].Fresh == 8 && p.Transitions[0].Counted == 20,
			"transitions: %+v", p.Transitions)
		for _, key := range []string{"decides", "expected_clients", "threshold", "renewals_last_minute", "renewals_sliding", "allows_eviction"} {
			_, ok := p.Upstream[key]
			expect.That(t, ok, "upstream lacks %s: %v", key, p.Upstream)
		}
		for _, says := range []string{"is on since 2000-01-01 00:01:10 UTC", "8 of 20 leases", "until 2000-01-01 01:01:10 UTC", "12 leases have ended", "/release"} {
			expect.That(t, strings.Contains(p.Reason, says), "the reason lacks %q: %s", says, p.Reason)
		}
	})
}

func TestSelfPreservationThatIsOffCannotBeReleased(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		refused := func(says string) {
			t.Helper()
			got, err := n.RoundTrip(t, httpdtest.Request("POST", "/v1/rollcall/self-preservation/release", ""))
			expect.That(t, err == nil && got.Status == http.StatusConflict && strings.Contains(got.Body, says),
				"got %d %s, %v, want 409 and %q", got.Status, got.Body, err, says)
		}
		refused(`{"error":"self-preservation is off: there is nothing to release"}`)
		n.Fleet(t, 20, 8, 2*time.Minute)
		n.Preservation(t, "POST", "/release")
		refused("self-preservation is released since 2000-01-01 00:02:00 UTC: there is nothing to release")
	})
}

func TestSelfPreservationThatIsSwitchedOffSaysSo(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		n.Set(func(m *fsmtest.Memory) {
			s := registry.DefaultSettings()
			s.SelfPreservation = false
			m.Registry.Configure(s)
		})
		p := n.Preservation(t, "GET", "")
		expect.That(t, !p.Enabled && strings.HasPrefix(p.Reason, "Self-preservation is switched off; 0 of 0 leases"), "got %+v", p)
	})
}

func TestSettingsAreShownByTheirKeys(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Set(func(m *fsmtest.Memory) {
		s := registry.DefaultSettings()
		s.OnCut = "dc2=expire"
		m.Registry.Configure(s)
	})
	got := n.Send(t, httpdtest.Request("GET", "/v1/rollcall/settings", "")).Body
	for _, want := range []string{`"self-preservation.enabled":true`, `"self-preservation.renewal-percent-threshold":0.85`, `"self-preservation.min-instances":10`,
		`"self-preservation.max-duration":"1h0m0s"`, `"eureka-compat.expected-client-renewal-interval":"30s"`, `"replication.on-cut":"dc2=expire"`} {
		expect.That(t, strings.Contains(got, want), "got %s, want %s in it", got, want)
	}
	for _, row := range setting.Of(new(registry.Settings)) {
		expect.That(t, strings.Contains(got, fmt.Sprintf("%q:", row.Key)), "got %s, without %s", got, row.Key)
	}
}
