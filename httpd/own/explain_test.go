package own_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/audit"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// throughConsul registers an instance of ORDERS through Consul's API, with a check named after its id that reaps it
// after a minute.
func throughConsul(id string) registry.Op {
	return registry.RegisterCatalog{
		Service: &catalog.Service{Name: "orders", ID: id}, Instance: httpdtest.NewInstance("ORDERS", id),
		Checks: []*catalog.Check{{ID: id, Service: id, ReapAfter: time.Minute.Milliseconds()}},
	}
}

var ops = registry.Act{Author: "ops", Reason: "deploy 12"}

// A bubble begins at midnight of 2000-01-01; leases last 90 s, heartbeats are due every 30 s.
func TestExplainSaysWhatAnOperatorAsksAtNight(t *testing.T) {
	minute := time.Minute.Milliseconds()
	performs := func(ops ...registry.Op) func(t *testing.T, n *httpdtest.Bubbled) {
		return func(t *testing.T, n *httpdtest.Bubbled) { n.Perform(t, ops...) }
	}
	for _, row := range []struct {
		name, state    string
		happens        func(t *testing.T, n *httpdtest.Bubbled)
		summary, story string // the story after the registration
	}{
		{"alive", "listed",
			func(t *testing.T, n *httpdtest.Bubbled) { time.Sleep(12 * time.Second) },
			"ORDERS/i1 is listed as UP. It was last renewed 12s ago, at 2000-01-01 00:00:00 UTC; unless it is renewed its lease of 90s ends in 1m18s, at 2000-01-01 00:01:30 UTC.", ""},
		{"overridden for a time", "listed",
			performs(registry.SetOverride{Key: httpdtest.KeyOf("i1"), Status: registry.OutOfService, For: 10 * minute, By: ops}),
			"ORDERS/i1 is listed as OUT_OF_SERVICE. OUT_OF_SERVICE is forced since 2000-01-01 00:00:00 UTC, by ops (deploy 12), until 2000-01-01 00:10:00 UTC; the instance itself reports UP. It was last renewed 0s ago, at 2000-01-01 00:00:00 UTC; unless it is renewed its lease of 90s ends in 1m30s, at 2000-01-01 00:01:30 UTC.",
			"\noverridden: OUT_OF_SERVICE forced for 10m by ops (deploy 12)"},
		{"overridden by a client", "listed",
			performs(registry.SetOverride{Key: httpdtest.KeyOf("i1"), Status: registry.Down}),
			"ORDERS/i1 is listed as DOWN. DOWN is forced since 2000-01-01 00:00:00 UTC, by a client of Eureka's API; the instance itself reports UP. It was last renewed 0s ago, at 2000-01-01 00:00:00 UTC; unless it is renewed its lease of 90s ends in 1m30s, at 2000-01-01 00:01:30 UTC.",
			"\noverridden: DOWN forced until it is ended"},
		{"quarantined", "quarantined",
			performs(registry.Quarantine{Key: httpdtest.KeyOf("i1"), For: 10 * minute, By: ops}),
			"ORDERS/i1 is in quarantine until 2000-01-01 00:10:00 UTC, by ops (deploy 12): it is in no list, and its heartbeats are accepted. It was last renewed 0s ago, at 2000-01-01 00:00:00 UTC; unless it is renewed its lease of 90s ends in 1m30s, at 2000-01-01 00:01:30 UTC.",
			"\nquarantined: taken out of every list for 10m by ops (deploy 12)"},
		{"dead and kept", "listed",
			func(t *testing.T, n *httpdtest.Bubbled) { n.Fleet(t, 20, 8, 2*time.Minute) },
			"ORDERS/i1 is listed as UP. It was last renewed 2m ago, at 2000-01-01 00:00:00 UTC, and its lease of 90s ended 30s ago, at 2000-01-01 00:01:30 UTC. It is not evicted because evictions are withheld. Self-preservation is on since 2000-01-01 00:01:10 UTC: 8 of 21 leases were renewed in time, not above the threshold of 0.85. Evictions are withheld, at the latest until 2000-01-01 01:01:10 UTC: 13 leases have ended. It goes off by itself when enough leases are fresh; `rollcall self-preservation release` (POST /v1/rollcall/self-preservation/release) lets evictions go on now.", ""},
		{"dead and held", "listed",
			func(t *testing.T, n *httpdtest.Bubbled) {
				n.Perform(t, registry.SelfPreservation{To: registry.PreservationHeld, For: 30 * minute, By: ops})
				time.Sleep(2 * time.Minute)
				n.Lead()
			},
			"ORDERS/i1 is listed as UP. It was last renewed 2m ago, at 2000-01-01 00:00:00 UTC, and its lease of 90s ended 30s ago, at 2000-01-01 00:01:30 UTC. It is not evicted because evictions are withheld. Held by ops at 2000-01-01 00:00:00 UTC (deploy 12). Evictions are withheld until 2000-01-01 00:30:00 UTC: 1 lease has ended. Without the hold: 0 of 1 leases were renewed in time, too few for self-preservation, which needs 10. `rollcall self-preservation release` (POST /v1/rollcall/self-preservation/release) ends it.", ""},
		{"dead, and nothing may be taken", "listed",
			func(t *testing.T, n *httpdtest.Bubbled) {
				settings := registry.DefaultSettings()
				settings.Threshold = registry.Whole
				n.Set(func(m *fsmtest.Memory) { m.Registry.Configure(settings) })
				time.Sleep(2 * time.Minute)
				n.Lead()
			},
			"ORDERS/i1 is listed as UP. It was last renewed 2m ago, at 2000-01-01 00:00:00 UTC, and its lease of 90s ended 30s ago, at 2000-01-01 00:01:30 UTC. It is not evicted because self-preservation.renewal-percent-threshold is 1, which leaves nothing for an eviction round to take.", ""},
		{"dead, and the leader is young", "listed",
			func(t *testing.T, n *httpdtest.Bubbled) {
				time.Sleep(2 * time.Minute)
				n.Set(func(m *fsmtest.Memory) { m.Reported.Suspended = true })
			},
			"ORDERS/i1 is listed as UP. It was last renewed 2m ago, at 2000-01-01 00:00:00 UTC, and its lease of 90s ended 30s ago, at 2000-01-01 00:01:30 UTC. It is not evicted yet because the leader is too young to know which instances are alive.", ""},
		{"after a change of leader", "listed",
			func(t *testing.T, n *httpdtest.Bubbled) {
				time.Sleep(time.Minute)
				n.Set(func(m *fsmtest.Memory) {
					m.Registry.Advance(m.Stamp())
					m.Registry.Establish(registry.Epoch{Term: 2, Index: 9}, "test")
				})
			},
			"ORDERS/i1 is listed as UP. It was last renewed 1m ago, at 2000-01-01 00:00:00 UTC; unless it is renewed its lease of 90s, prolonged by 5s after a change of leader or by eureka-compat.doubled-lease, ends in 35s, at 2000-01-01 00:01:35 UTC.", ""},
		{"after time without a leader", "listed",
			func(t *testing.T, n *httpdtest.Bubbled) {
				n.Set(func(m *fsmtest.Memory) {
					stamp := m.Stamp()
					m.Registry.Advance(registry.Stamp{Lease: stamp.Lease, Wall: stamp.Wall + 24_000})
				})
			},
			"ORDERS/i1 is listed as UP. It was last renewed 0s ago, at 2000-01-01 00:00:00 UTC (24s more by the wall clock: time without a leader counts for no lease); unless it is renewed its lease of 90s ends in 1m30s, at 2000-01-01 00:01:54 UTC.", ""},
		{"dead, and without a leader", "listed",
			func(t *testing.T, n *httpdtest.Bubbled) {
				time.Sleep(2 * time.Minute)
				n.Set(func(m *fsmtest.Memory) { m.Registry.Advance(m.Stamp()); m.Reported = registry.Health{Ready: true} })
			},
			"ORDERS/i1 is listed as UP. It was last renewed 2m ago, at 2000-01-01 00:00:00 UTC, and its lease of 90s ended 30s ago, at 2000-01-01 00:01:30 UTC. It is not evicted because there is no leader that this node knows, and without one nothing changes. These times are of the newest entry that this node applied, up to 2s old while a leader serves.", ""},
		{"dead, and next in turn", "listed",
			func(t *testing.T, n *httpdtest.Bubbled) { time.Sleep(2 * time.Minute) },
			"ORDERS/i1 is listed as UP. It was last renewed 2m ago, at 2000-01-01 00:00:00 UTC, and its lease of 90s ended 30s ago, at 2000-01-01 00:01:30 UTC. It goes with one of the next eviction rounds, each of which takes a part of the registry.", ""},
		{"evicted", "gone",
			func(t *testing.T, n *httpdtest.Bubbled) { time.Sleep(2 * time.Minute); n.Lead() },
			"ORDERS/i1 is gone: its lease ended, and it was evicted at 2000-01-01 00:02:00 UTC, 2m after its last renewal.",
			"\nevicted: evicted 2m after the last renewal"},
		{"canceled in quarantine", "gone",
			performs(registry.Quarantine{Key: httpdtest.KeyOf("i1"), For: 10 * minute, By: ops}, registry.Cancel{Key: httpdtest.KeyOf("i1")}),
			"ORDERS/i1 is gone: it was canceled at 2000-01-01 00:00:00 UTC by a client. If it registers before 2000-01-01 00:10:00 UTC it is in quarantine, by ops (deploy 12).",
			"\nquarantined: taken out of every list for 10m by ops (deploy 12)" +
				"\ncanceled: canceled by a client"},
		{"canceled in a quarantine that is over", "gone",
			func(t *testing.T, n *httpdtest.Bubbled) {
				n.Perform(t, registry.Quarantine{Key: httpdtest.KeyOf("i1"), For: minute, By: ops}, registry.Cancel{Key: httpdtest.KeyOf("i1")})
				time.Sleep(2 * time.Minute)
			},
			"ORDERS/i1 is gone: it was canceled at 2000-01-01 00:00:00 UTC by a client.",
			"\nquarantined: taken out of every list for 1m by ops (deploy 12)" +
				"\ncanceled: canceled by a client"},
		{"without a lease", "listed",
			func(t *testing.T, n *httpdtest.Bubbled) {
				n.Perform(t, throughConsul("i1"))
				time.Sleep(time.Hour)
				n.Perform(t, registry.SetCheck{Check: "i1", Status: catalog.Critical})
			},
			"ORDERS/i1 is listed as DOWN. It has no lease: it was registered through Consul's API, and stays until it is deregistered.",
			"\nregistered again: registered again as UP by a client" +
				"\nstatus changed: status became DOWN by a client"},
		{"gone because its check was critical", "gone",
			func(t *testing.T, n *httpdtest.Bubbled) {
				n.Perform(t, throughConsul("i1"), registry.SetCheck{Check: "i1", Status: catalog.Critical})
				time.Sleep(61 * time.Second)
				n.Lead()
			},
			"ORDERS/i1 is gone: it was canceled at 2000-01-01 00:01:01 UTC, because its check i1 was critical for too long.",
			"\nregistered again: registered again as UP by a client" +
				"\nstatus changed: status became DOWN by a client" +
				"\ncanceled: deregistered by  (its check i1 was critical for too long)"},
		{"a long life", "listed",
			func(t *testing.T, n *httpdtest.Bubbled) {
				for range 3 {
					time.Sleep(80 * time.Second)
					n.Perform(t, registry.Renew{Key: httpdtest.KeyOf("i1")})
				}
				n.Perform(t, registry.SetOverride{Key: httpdtest.KeyOf("i1"), Status: registry.OutOfService, For: 1000, By: ops},
					registry.UpdateMetadata{Key: httpdtest.KeyOf("i1"), Pairs: []registry.Pair{{Key: "a", Value: "b"}}},
					registry.Quarantine{Key: httpdtest.KeyOf("i1"), For: 1000, By: ops})
				time.Sleep(2 * time.Second)
				n.Lead()
				later := changedLater(httpdtest.NewInstance("ORDERS", "i1"))
				later.Status = registry.Down
				n.Perform(t, registry.Register{Instance: later}, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
			},
			"ORDERS/i1 is listed as DOWN. It was last renewed 0s ago, at 2000-01-01 00:04:02 UTC; unless it is renewed its lease of 90s ends in 1m30s, at 2000-01-01 00:05:32 UTC.",
			"\nrenewed late: renewed 1m20s after the renewal before ×3" +
				"\noverridden: OUT_OF_SERVICE forced for 1s by ops (deploy 12)" +
				"\nmetadata changed: metadata changed by a client" +
				"\nquarantined: taken out of every list for 1s by ops (deploy 12)" +
				"\noverride ended: override ended; status became UP" +
				"\nquarantine ended: listed again as UP" +
				"\nstatus changed: status became DOWN by a client" +
				"\nolder registration kept out: an older registration by a client was not taken over; the lease began anew"},
	} {
		httpdtest.InBubble(t, row.name, func(t *testing.T) {
			n := httpdtest.NewBubbled(t, httpd.Config{})
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
			row.happens(t, n)
			e := n.Explain(t, "i1")
			expect.That(t, e.State == row.state && e.Summary == row.summary, "%s: got  %s\nwant %s", e.State, e.Summary, row.summary)
			expect.Equal(t, e.Story(), "registered: registered as UP by a client"+row.story, "the story is")
		})
	}
}

func TestExplainHasTheFactsAsFields(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		midnight := time.Now().UnixMilli()
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")},
			registry.SetOverride{Key: httpdtest.KeyOf("i1"), Status: registry.OutOfService, For: 600_000, By: ops},
			registry.Quarantine{Key: httpdtest.KeyOf("i1"), For: 60_000, By: ops})
		time.Sleep(10 * time.Second)
		e := n.Explain(t, "i1")
		expect.That(t, e.Status == "OUT_OF_SERVICE" && e.Reported == "UP" && e.Clock == "running" && !e.Expired && e.Silent == 10_000 && e.ExpiresIn == 80_000 && e.ExpiresAt == midnight+90_000 && e.Removed == nil,
			"got %+v", e)
		o := e.Override
		expect.That(t, o != nil && o.Status == "OUT_OF_SERVICE" && o.Author == "ops" && o.Reason == "deploy 12" && o.Since == midnight && o.Until == midnight+600_000,
			"the override is %+v", o)
		q := e.Quarantine
		expect.That(t, q != nil && q.Author == "ops" && q.Reason == "deploy 12" && q.Since == midnight && q.Until == midnight+60_000,
			"the quarantine is %+v", q)
		p := e.SelfPreservation
		expect.That(t, p.State == "off" && !p.Withholds && p.Reason == "Self-preservation is off: no lease is older than one renewal interval. Leases are evicted when they end.",
			"self-preservation is %+v", p)
		n.Perform(t, registry.Cancel{Key: httpdtest.KeyOf("i1")})
		e = n.Explain(t, "i1")
		expect.That(t, e.Status == "" && e.Removed != nil && e.Removed.Kind == "canceled" && e.Removed.At == midnight+10_000, "after the cancel: %+v", e)
		n.Set(func(m *fsmtest.Memory) { m.Reported.Leads = false })
		expect.Equal(t, n.Explain(t, "i1").Clock, "applied", "the clock of a follower is")
	})
}

// audited is a node with an audit, and tokens keyed by the names of their roles.
type audited struct {
	*httpdtest.Coordinated
	path   string
	tokens map[string]string
}

func newAudited(t *testing.T, mode access.Mode) *audited {
	t.Helper()
	a := &audited{path: filepath.Join(t.TempDir(), "audit.log"), tokens: map[string]string{}}
	content := access.Content{Revision: 1, Mode: mode}
	for i, role := range []struct{ name, rules string }{
		{"operator", ""},
		{"orders", "app ORDERS read,register;kv orders/ read,write;lock orders read,write;session read,write"},
	} {
		r := &access.Role{Name: role.name}
		for _, text := range strings.FieldsFunc(role.rules, func(c rune) bool { return c == ';' }) {
			r.Rules = append(r.Rules, need.Got(access.ParseRule(text))(t))
		}
		if role.rules == "" {
			r.Rules = access.Everything()
		}
		text := access.NewText([access.RandomBytes]byte{byte(i + 1)}, "", "")
		accessor, hash, err := access.Parse(text, "")
		need.That(t, err == nil, "%v", err)
		content.Roles = append(content.Roles, r)
		content.Tokens = append(content.Tokens, &access.Token{Accessor: accessor, Name: role.name, Roles: []string{role.name}, Secrets: []access.Secret{{Hash: hash}}})
		a.tokens[role.name] = text
	}
	slices.SortFunc(content.Tokens, func(a, b *access.Token) int { return strings.Compare(a.Accessor, b.Accessor) })
	table := need.Got(access.TableOf(content))(t)
	log := need.Got(audit.Open(audit.Config{File: a.path, MaxBytes: 1 << 20, Keep: 1}, nil, slog.New(slog.DiscardHandler)))(t)
	a.Coordinated = httpdtest.NewCoordinated(t, httpd.Config{Node: "n1", Audit: log, Members: &members{}, Access: web.AccessConfig{Table: func() *access.Table { return table }}})
	return a
}

// as sends a request with a role's token, or without one if role is empty.
func (a *audited) as(role, method, target, body string) httpdtest.Reply {
	if role == "" {
		return a.Send(method, target, body, "Content-Type: application/json")
	}
	return a.Send(method, target, body, "Content-Type: application/json", "X-Consul-Token: "+a.tokens[role])
}

// records returns the records that a query selects.
func (a *audited) records(t *testing.T, query string) []api.AuditRecord {
	t.Helper()
	got := httpdtest.DecodeReply[api.Audit](t, a.as("operator", http.MethodGet, "/v1/rollcall/audit?"+query, ""))
	expect.That(t, got.Node == "n1", "the node is %q, want n1", got.Node)
	return got.Records
}

// shown formats the parts of records that most tests check.
func shown(records []api.AuditRecord) (lines []string) {
	for _, r := range records {
		lines = append(lines, strings.Join([]string{r.Principal, r.Operation, r.Resource, r.Name, r.Outcome, r.Says}, "|"))
	}
	return lines
}

func TestAuditHasEachWriteButRenewals(t *testing.T) {
	a := newAudited(t, access.On)
	session := httpdtest.DecodeReply[struct{ ID string }](t, a.as("orders", "PUT", "/v1/session/create", `{}`)).ID
	const orders = "/eureka/apps/ORDERS/i1"
	for _, row := range []struct {
		role, method, target, body string
		want                       string // lines without the principal; empty if nothing is recorded
	}{
		{"orders", "POST", "/eureka/apps/ORDERS", httpdtest.InstanceJSON, "register|app ORDERS|ORDERS/i1|done|"},
		{"orders", "PUT", orders, "", ""},
		{"orders", "PUT", orders + "/status?value=DOWN", "", "status|app ORDERS|ORDERS/i1|done|"},
		{"orders", "PUT", orders + "/metadata?a=b", "", "metadata|app ORDERS|ORDERS/i1|done|"},
		{"orders", "DELETE", "/eureka/apps/ORDERS/i9", "", "cancel|app ORDERS|ORDERS/i9|refused|"},
		{"operator", "PUT", i1Path + "/override?value=DOWN&author=amy&reason=deploy", "", "status|app ORDERS|ORDERS/i1|done|amy: deploy"},
		{"operator", "PUT", i1Path + "/quarantine?for=1h&reason=odd", "", "quarantine|app ORDERS|ORDERS/i1|done|odd"},
		{"operator", "DELETE", i1Path + "/quarantine", "", "quarantine|app ORDERS|ORDERS/i1|done|"},
		{"operator", "POST", "/v1/rollcall/self-preservation/hold?for=1h&author=amy", "", "self_preservation|operator|held|done|amy"},
		{"operator", "POST", "/v1/rollcall/prune?not-passing", "", "cancel|app ORDERS|ORDERS/i1|done|"},
		{"orders", "PUT", "/v1/agent/service/register", `{"Name":"orders","ID":"o1","Check":{"CheckID":"c1","TTL":"10m"}}`, "catalog_register|app ORDERS|o1|done|"},
		{"orders", "PUT", "/v1/agent/check/pass/c1", "", "check|app ORDERS|c1|done|"},
		{"orders", "PUT", "/v1/agent/check/pass/c1", "", ""},
		{"orders", "PUT", "/v1/agent/service/deregister/o1", "", "catalog_deregister|app ORDERS|o1|done|"},
		{"orders", "PUT", "/v1/kv/orders/a", "secret value", "key_set|kv orders/a|orders/a|done|"},
		{"orders", "PUT", "/v1/kv/orders/a?cas=99", "x", "key_cas|kv orders/a|orders/a|refused|"},
		{"orders", "PUT", "/v1/kv/orders/a?acquire=" + session, "x", "key_lock|kv orders/a|orders/a|done|"},
		{"orders", "DELETE", "/v1/kv/orders/?recurse", "", "key_delete-tree|kv orders/*|orders/|done|"},
		{"orders", "PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"orders/b","Value":""}},{"KV":{"Verb":"get","Key":"orders/b"}},{"KV":{"Verb":"delete","Key":"orders/c"}}]`,
			"key_set|kv orders/b|orders/b|done|\nkey_delete|kv orders/c|orders/c|done|"},
		{"orders", "PUT", "/v1/rollcall/locks/orders?session=" + session, "", "permit_acquire|lock orders|orders|done|"},
		{"orders", "PUT", "/v1/session/renew/" + session, "", ""},
		{"orders", "PUT", "/v1/session/destroy/" + session, "", "session_destroy|session|" + session + "|done|"},
		{"operator", "PUT", "/v1/rollcall/auth/roles/readers", `{"rules":["app * read"]}`, "role_put|auth|readers|done|"},
		{"operator", "PUT", "/v1/rollcall/auth/roles/readers?author=amy&reason=unused", `{"rules":[]}`, "role_put|auth|readers|done|amy: unused"},
		{"operator", "PUT", "/v1/rollcall/auth/mode?mode=log-only", "", "auth_mode|auth|log-only|done|"},
		{"operator", "DELETE", "/v1/rollcall/members/n3?author=amy&reason=dead", "", "member_remove|operator|n3|done|amy: dead"},
		{"operator", "GET", "/v1/rollcall/apps", "", ""},
	} {
		before := len(a.records(t, "limit=1000"))
		got := a.as(row.role, row.method, row.target, row.body)
		var lines []string
		for _, r := range a.records(t, "limit=1000")[before:] {
			expect.That(t, r.Principal == row.role && r.Via == "token" && len(r.Accessor) == 16 && r.Node == "n1" && r.RequestID == got.Header.Get("X-Request-Id"),
				"%s %s: the record is of %+v", row.method, row.target, r)
			expect.That(t, r.Address == "192.0.2.1" && time.Since(r.Time) < time.Minute && (r.Index > 0 || r.Operation != "register"),
				"%s %s: the record has %+v", row.method, row.target, r)
			_, line, _ := strings.Cut(shown([]api.AuditRecord{r})[0], "|")
			lines = append(lines, line)
		}
		expect.That(t, strings.Join(lines, "\n") == row.want, "%s %s: %d %s, recorded %q, want %q", row.method, row.target, got.Status, got.Body, lines, row.want)
	}
	made := httpdtest.DecodeReply[api.NewToken](t, a.as("operator", "POST", "/v1/rollcall/auth/tokens?author=amy", `{"name":"ci","roles":["readers"],"app":"ORDERS","expires":"1h"}`))
	records := a.records(t, "limit=1000")
	last := records[len(records)-1]
	expect.That(t, last.Name == "ci/"+made.Accessor && strings.HasPrefix(last.Grants, "roles readers; app ORDERS; good until 20") && last.Says == "amy", "of a new token: %+v", last)
	put := slices.IndexFunc(records, func(r api.AuditRecord) bool { return r.Operation == "role_put" && r.Name == "readers" })
	expect.Equal(t, records[put].Grants, "app * read", "of a role:")
	content, err := os.ReadFile(a.path)
	expect.That(t, err == nil && !bytes.Contains(content, []byte("secret value")), "a value stands in the audit (%v)", err)
}

func TestAuditHasOperatorsActsAloneWhileCallersAreNotAskedForNames(t *testing.T) {
	a := newAudited(t, access.Off)
	a.as("", "POST", "/eureka/apps/ORDERS", httpdtest.InstanceJSON)
	a.as("", "PUT", "/v1/kv/k", "v")
	a.as("", "PUT", i1Path+"/override?value=DOWN&author=amy", "")
	a.as("", "POST", "/v1/rollcall/prune?not-passing", "")
	a.as("", "GET", "/v1/rollcall/auth/tokens", "") // needs a token in every mode
	want := `["|status|app ORDERS|ORDERS/i1|done|amy" "|cancel|app ORDERS|ORDERS/i1|done|" "|read|auth|GET /v1/rollcall/auth/tokens|unauthenticated|"]`
	expect.Equal(t, fmt.Sprintf("%q", shown(a.records(t, ""))), want, "recorded:")
}

func TestAuditHasDeniedTriesInSamples(t *testing.T) {
	a := newAudited(t, access.On)
	for range 3 {
		a.as("orders", "GET", "/v1/kv/pay/a", "")
		a.as("orders", "PUT", "/eureka/apps/PAY/i1", "") // a heartbeat
		a.as("", "DELETE", "/v1/rollcall/members/n3?reason=x", "")
	}
	a.Send("PUT", "/eureka/apps/ORDERS/i1", "", "X-Consul-Token: rct_nonsense", "X-Request-Id: beat-7")
	want := `["orders|read|kv pay/a|GET /v1/kv/pay/a|denied|" "orders|register|app PAY|PUT /eureka/apps/PAY/i1|denied|" ` +
		`"|write|operator|DELETE /v1/rollcall/members/n3|unauthenticated|"`
	records := a.records(t, "")
	got := fmt.Sprintf("%q", shown(records))
	need.That(t, strings.HasPrefix(got, want) && len(records) == 4, "recorded %s, want it to begin with %s", got, want)
	last := records[3]
	expect.That(t, last.Operation == "authenticate" && last.Outcome == api.AuditUnauthenticated && last.RequestID == "beat-7" && last.Address == "192.0.2.1" && last.Says != "",
		"the failed credential's record is %+v", last)
	expect.That(t, last.Suppressed == 2, "it says that %d tries were left out, want 2", last.Suppressed)
	a.Send("PUT", "/eureka/apps/ORDERS/i2", "", "X-Consul-Token: "+a.tokens["orders"], "X-Netflix-Discovery-Replication: true")
	peer := a.records(t, "principal=orders")
	beat := peer[len(peer)-1]
	expect.That(t, beat.Resource == "peer eureka" && beat.Name == "PUT /eureka/apps/ORDERS/i2" && beat.Address == "192.0.2.1", "a server's heartbeat is recorded as %+v", beat)
}

func TestAuditSaysWhatWouldBeDenied(t *testing.T) {
	a := newAudited(t, access.LogOnly)
	a.as("orders", "PUT", "/v1/kv/pay/a", "v")
	a.as("", "PUT", "/eureka/apps/ORDERS/i1", "")
	want := `["orders|write|kv pay/a|PUT /v1/kv/pay/a|would-deny|" "orders|key_set|kv pay/a|pay/a|done|" "|register|app ORDERS|PUT /eureka/apps/ORDERS/i1|would-deny|"]`
	expect.Equal(t, fmt.Sprintf("%q", shown(a.records(t, ""))), want, "recorded:")
}

func TestAuditHasNoSecret(t *testing.T) {
	a := newAudited(t, access.On)
	canary := access.NewText([access.RandomBytes]byte{99}, "", "")
	secret := strings.Split(canary, "_")[2]
	basic := func(user, password string) string {
		return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	for i, header := range []string{
		"X-Consul-Token: " + canary, "X-Consul-Token: " + canary[:len(canary)-1], "X-Consul-Token: x" + canary, "Authorization: Bearer " + canary,
		"Authorization: " + canary, "Authorization: Digest " + canary, basic("orders", canary), basic(canary, ""), basic(canary, canary), "Authorization: Basic " + canary,
		"X-Consul-Token: " + a.tokens["orders"] + "\nAuthorization: Bearer " + canary,
	} {
		target := fmt.Sprintf("/v1/kv/orders/%d?token=%s", i, canary)
		for _, one := range []string{target, "/eureka/apps/ORDERS?token=" + canary, "/v1/rollcall/auth/tokens"} {
			got := a.Send("GET", one, "", strings.Split(header, "\n")...)
			expect.That(t, got.Status == 401 || got.Status == 403 || got.Status == 429, "%s with %s: got %d", one, header, got.Status)
		}
	}
	a.as("operator", "POST", "/v1/rollcall/auth/tokens", `{"name":"new","roles":["orders"]}`)
	a.records(t, "limit=10000")
	content, err := os.ReadFile(a.path)
	need.That(t, err == nil && bytes.Count(content, []byte(`"authenticate"`)) > 0, "%v: %s", err, content)
	expect.That(t, !bytes.Contains(content, []byte(secret)) && !bytes.Contains(content, []byte(canary[:20])), "a secret stands in the audit: %s", content)
}

func TestAuditIsSelectedAndRefusesWhatMeansNothing(t *testing.T) {
	a := newAudited(t, access.On)
	a.as("orders", "PUT", "/v1/kv/orders/a", "1")
	a.as("orders", "POST", "/eureka/apps/ORDERS", httpdtest.InstanceJSON)
	a.as("operator", "PUT", "/v1/kv/other", "1")
	for _, row := range []struct {
		query  string
		status int
		holds  string // of the response
		count  int    // of records; -1 for an error
	}{
		{"principal=orders", 200, "orders/a", 2},
		{"app=orders", 200, "ORDERS/i1", 1},
		{"outcome=denied", 200, `"records":[]`, 0},
		{"limit=1", 200, `"other"`, 1},
		{"since=1h", 200, "", 3},
		{"since=2999-01-01T00:00:00Z", 200, "", 0},
		{"since=yesterday", 400, "2h", -1},
		{"since=-2h", 400, "duration", -1},
		{"outcome=fine", 400, "would-deny", -1},
		{"limit=0", 400, "from 1 to 10000", -1},
		{"limit=10001", 400, "from 1 to 10000", -1},
		{"limit=many", 400, "limit", -1},
	} {
		got := a.as("operator", "GET", "/v1/rollcall/audit?"+row.query, "")
		expect.That(t, got.Status == row.status && strings.Contains(got.Body, row.holds) && (row.count < 0 || strings.Count(got.Body, `"time"`) == row.count),
			"%s: got %d %s", row.query, got.Status, got.Body)
	}
	a.as("orders", "GET", "/v1/rollcall/audit", "").Says(t, 403, "", "who may not read it")
	httpdtest.NewCoordinated(t, httpd.Config{Access: web.AccessConfig{Floor: access.Off}}).Get("/v1/rollcall/audit").Says(t, 401, "", "nobody")
}

func TestAuthorOfAnActIsThePrincipal(t *testing.T) {
	a := newAudited(t, access.Off)
	a.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	a.as("operator", "PUT", i1Path+"/override?value=DOWN&author=amy&reason=deploy", "")
	e := httpdtest.DecodeReply[api.Explanation](t, a.Get(i1Path+"/explain"))
	expect.That(t, e.Override.Author == "operator" && e.Override.Says == "amy" && strings.Contains(e.Summary, "by operator as amy (deploy)"), "got %+v: %s", e.Override, e.Summary)
	last := e.History[len(e.History)-1]
	expect.That(t, last.Author == "operator" && last.Says == "amy" && last.Reason == "deploy", "the last event is %+v", last)
}

func TestHistoryNamesThePrincipal(t *testing.T) {
	n := httpdtest.NewCoordinated(t, httpd.Config{})
	by := registry.Origin{Principal: "orders-service"}
	for _, op := range []registry.Op{registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")}, registry.SetOverride{Key: httpdtest.KeyOf("i1"), Status: registry.Down}, registry.Cancel{Key: httpdtest.KeyOf("i1")}} {
		_, err := n.Apply(t.Context(), by, op)
		need.That(t, err == nil, "%v", err)
	}
	e := httpdtest.DecodeReply[api.Explanation](t, n.Get(i1Path+"/explain"))
	need.That(t, len(e.History) == 3, "got %+v", e.History)
	for i, want := range []string{"registered as UP by orders-service", "DOWN forced until it is ended", "canceled by orders-service"} {
		expect.That(t, e.History[i].Text == want && e.History[i].Author == "orders-service", "%d: got %+v, want %q", i, e.History[i], want)
	}
	expect.That(t, strings.Contains(e.Summary, "by orders-service"), "the summary is %s", e.Summary)
}

func TestOperatorsActsAreCountedAndWhatClientsDoIsNot(t *testing.T) {
	a := newAudited(t, access.On)
	for _, call := range []struct{ role, method, target, body string }{
		{"orders", "POST", "/eureka/apps/ORDERS", httpdtest.InstanceJSON},
		{"orders", "PUT", "/eureka/apps/ORDERS/i1/status?value=DOWN", ""},
		{"orders", "PUT", i1Path + "/quarantine?for=1h", ""}, // denied
		{"operator", "PUT", i1Path + "/quarantine?for=1h&reason=odd", ""},
		{"operator", "DELETE", i1Path + "/quarantine", ""},
		{"operator", "POST", "/v1/rollcall/prune?not-passing", ""},
	} {
		a.as(call.role, call.method, call.target, call.body)
	}
	text := a.as("operator", "GET", "/metrics", "").Body
	for act, want := range map[string]string{"quarantine": "2", "cancel": "1", "status": "0", "member_remove": "0"} {
		line := `rollcall_acts_total{act="` + act + `"} ` + want + "\n"
		expect.That(t, strings.Contains(text, line), "/metrics lacks %q", line)
	}
}
