package httpd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// explained is what the tests look at in an explanation.
type explained struct {
	App, ID, State, Summary, Status, Reported, Clock string
	Expired                                          bool
	ExpiresIn                                        int64 `json:"expires_in_ms"`
	ExpiresAt                                        int64 `json:"expires_at"`
	Silent                                           int64 `json:"silent_ms"`
	Override                                         *struct {
		Status, Author, Reason string
		Since, Until           int64
		Drain                  bool
	}
	Quarantine *struct {
		Author, Reason string
		Since, Until   int64
	}
	Removed *struct {
		At   int64
		Kind string
	}
	SelfPreservation struct {
		State, Reason string
		Withholds     bool
	} `json:"self_preservation"`
	History []struct {
		At                         int64
		What, Text, Author, Reason string
		Times                      int
	}
}

// story is what was told about an instance, one line per event.
func (e explained) story() string {
	var lines []string
	for _, h := range e.History {
		line := fmt.Sprintf("%s: %s", h.What, h.Text)
		if h.Times != 1 {
			line += fmt.Sprintf(" ×%d", h.Times)
		}
		if h.Author+h.Reason != "" {
			line += fmt.Sprintf(" by %s (%s)", h.Author, h.Reason)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (n *bubbled) explain(t *testing.T, id string) explained {
	t.Helper()
	got := n.get(t, "/v1/rollcall/apps/orders/"+id+"/explain?consistency=stale")
	var e explained
	err := json.Unmarshal([]byte(got.body), &e)
	need.That(t, err == nil && got.status == http.StatusOK, "%s: %d %s, %v", id, got.status, got.body, err)
	expect.That(t, e.App == "ORDERS" && e.ID == id, "it explains %s/%s", e.App, e.ID)
	return e
}

// throughConsul registers an instance of ORDERS through Consul's API, with a check of its id by which it
// is reaped after a minute.
func throughConsul(id string) registry.Op {
	return registry.RegisterCatalog{
		Service: &catalog.Service{Name: "orders", ID: id}, Instance: newInstance("ORDERS", id),
		Checks: []*catalog.Check{{ID: id, Service: id, ReapAfter: time.Minute.Milliseconds()}},
	}
}

var ops = registry.Act{Author: "ops", Reason: "deploy 12"}

// A bubble begins at midnight of 2000-01-01; leases are 90 s, heartbeats due every 30 s.
func TestExplainSaysWhatAnOperatorAsksAtNight(t *testing.T) {
	minute := time.Minute.Milliseconds()
	performs := func(ops ...registry.Op) func(t *testing.T, n *bubbled) {
		return func(t *testing.T, n *bubbled) { n.Perform(t, ops...) }
	}
	for _, row := range []struct {
		name, state    string
		happens        func(t *testing.T, n *bubbled)
		summary, story string // the story after the registration
	}{
		{"alive", "listed",
			func(t *testing.T, n *bubbled) { time.Sleep(12 * time.Second) },
			"ORDERS/i1 is listed as UP. It was last renewed 12s ago, at 2000-01-01 00:00:00 UTC; unless it is renewed its lease of 90s ends in 1m18s, at 2000-01-01 00:01:30 UTC.", ""},
		{"overridden for a time", "listed",
			performs(registry.SetOverride{Key: keyOf("i1"), Status: registry.OutOfService, For: 10 * minute, By: ops}),
			"ORDERS/i1 is listed as OUT_OF_SERVICE. OUT_OF_SERVICE is forced since 2000-01-01 00:00:00 UTC, by ops (deploy 12), until 2000-01-01 00:10:00 UTC; the instance itself reports UP. It was last renewed 0s ago, at 2000-01-01 00:00:00 UTC; unless it is renewed its lease of 90s ends in 1m30s, at 2000-01-01 00:01:30 UTC.",
			"\noverridden: OUT_OF_SERVICE forced for 10m by ops (deploy 12)"},
		{"overridden by a client", "listed",
			performs(registry.SetOverride{Key: keyOf("i1"), Status: registry.Down}),
			"ORDERS/i1 is listed as DOWN. DOWN is forced since 2000-01-01 00:00:00 UTC, by a client of Eureka's API; the instance itself reports UP. It was last renewed 0s ago, at 2000-01-01 00:00:00 UTC; unless it is renewed its lease of 90s ends in 1m30s, at 2000-01-01 00:01:30 UTC.",
			"\noverridden: DOWN forced until it is ended"},
		{"quarantined", "quarantined",
			performs(registry.Quarantine{Key: keyOf("i1"), For: 10 * minute, By: ops}),
			"ORDERS/i1 is in quarantine until 2000-01-01 00:10:00 UTC, by ops (deploy 12): it is in no list, and its heartbeats are accepted. It was last renewed 0s ago, at 2000-01-01 00:00:00 UTC; unless it is renewed its lease of 90s ends in 1m30s, at 2000-01-01 00:01:30 UTC.",
			"\nquarantined: taken out of every list for 10m by ops (deploy 12)"},
		{"dead and kept", "listed",
			func(t *testing.T, n *bubbled) { n.fleet(t, 20, 8, 2*time.Minute) },
			"ORDERS/i1 is listed as UP. It was last renewed 2m ago, at 2000-01-01 00:00:00 UTC, and its lease of 90s ended 30s ago, at 2000-01-01 00:01:30 UTC. It is not evicted because evictions are withheld. Self-preservation is on since 2000-01-01 00:01:10 UTC: 8 of 21 leases were renewed in time, not above the threshold of 0.85. Evictions are withheld, at the latest until 2000-01-01 01:01:10 UTC: 13 leases have ended. It goes off by itself when enough leases are fresh; `rollcall self-preservation release` (POST /v1/rollcall/self-preservation/release) lets evictions go on now.", ""},
		{"dead and held", "listed",
			func(t *testing.T, n *bubbled) {
				n.Perform(t, registry.SelfPreservation{To: registry.PreservationHeld, For: 30 * minute, By: ops})
				time.Sleep(2 * time.Minute)
				n.Lead()
			},
			"ORDERS/i1 is listed as UP. It was last renewed 2m ago, at 2000-01-01 00:00:00 UTC, and its lease of 90s ended 30s ago, at 2000-01-01 00:01:30 UTC. It is not evicted because evictions are withheld. Held by ops at 2000-01-01 00:00:00 UTC (deploy 12). Evictions are withheld until 2000-01-01 00:30:00 UTC: 1 lease has ended. Without the hold: 0 of 1 leases were renewed in time, too few for self-preservation, which needs 10. `rollcall self-preservation release` (POST /v1/rollcall/self-preservation/release) ends it.", ""},
		{"dead, and nothing may be taken", "listed",
			func(t *testing.T, n *bubbled) {
				settings := registry.DefaultSettings()
				settings.Threshold = registry.Whole
				n.Set(func(m *registrytest.Memory) { m.Registry.Configure(settings) })
				time.Sleep(2 * time.Minute)
				n.Lead()
			},
			"ORDERS/i1 is listed as UP. It was last renewed 2m ago, at 2000-01-01 00:00:00 UTC, and its lease of 90s ended 30s ago, at 2000-01-01 00:01:30 UTC. It is not evicted because self-preservation.renewal-percent-threshold is 1, which leaves nothing for an eviction round to take.", ""},
		{"dead, and the leader is young", "listed",
			func(t *testing.T, n *bubbled) {
				time.Sleep(2 * time.Minute)
				n.Set(func(m *registrytest.Memory) { m.Reported.Suspended = true })
			},
			"ORDERS/i1 is listed as UP. It was last renewed 2m ago, at 2000-01-01 00:00:00 UTC, and its lease of 90s ended 30s ago, at 2000-01-01 00:01:30 UTC. It is not evicted yet because the leader is too young to know which instances are alive.", ""},
		{"after a change of leader", "listed",
			func(t *testing.T, n *bubbled) {
				time.Sleep(time.Minute)
				n.Set(func(m *registrytest.Memory) {
					m.Registry.Advance(m.Stamp())
					m.Registry.Establish(registry.Epoch{Term: 2, Index: 9}, "test")
				})
			},
			"ORDERS/i1 is listed as UP. It was last renewed 1m ago, at 2000-01-01 00:00:00 UTC; unless it is renewed its lease of 90s, prolonged by 5s after a change of leader or by eureka-compat.doubled-lease, ends in 35s, at 2000-01-01 00:01:35 UTC.", ""},
		{"after time without a leader", "listed",
			func(t *testing.T, n *bubbled) {
				n.Set(func(m *registrytest.Memory) {
					stamp := m.Stamp()
					m.Registry.Advance(registry.Stamp{Lease: stamp.Lease, Wall: stamp.Wall + 24_000})
				})
			},
			"ORDERS/i1 is listed as UP. It was last renewed 0s ago, at 2000-01-01 00:00:00 UTC (24s more by the wall clock: time without a leader counts for no lease); unless it is renewed its lease of 90s ends in 1m30s, at 2000-01-01 00:01:54 UTC.", ""},
		{"dead, and without a leader", "listed",
			func(t *testing.T, n *bubbled) {
				time.Sleep(2 * time.Minute)
				n.Set(func(m *registrytest.Memory) { m.Registry.Advance(m.Stamp()); m.Reported = registry.Health{Ready: true} })
			},
			"ORDERS/i1 is listed as UP. It was last renewed 2m ago, at 2000-01-01 00:00:00 UTC, and its lease of 90s ended 30s ago, at 2000-01-01 00:01:30 UTC. It is not evicted because there is no leader that this node knows, and without one nothing changes. These times are of the newest entry that this node applied, up to 2s old while a leader serves.", ""},
		{"dead, and next in turn", "listed",
			func(t *testing.T, n *bubbled) { time.Sleep(2 * time.Minute) },
			"ORDERS/i1 is listed as UP. It was last renewed 2m ago, at 2000-01-01 00:00:00 UTC, and its lease of 90s ended 30s ago, at 2000-01-01 00:01:30 UTC. It goes with one of the next eviction rounds, each of which takes a part of the registry.", ""},
		{"evicted", "gone",
			func(t *testing.T, n *bubbled) { time.Sleep(2 * time.Minute); n.Lead() },
			"ORDERS/i1 is gone: its lease ended, and it was evicted at 2000-01-01 00:02:00 UTC, 2m after its last renewal.",
			"\nevicted: evicted 2m after the last renewal"},
		{"canceled in quarantine", "gone",
			performs(registry.Quarantine{Key: keyOf("i1"), For: 10 * minute, By: ops}, registry.Cancel{Key: keyOf("i1")}),
			"ORDERS/i1 is gone: it was canceled at 2000-01-01 00:00:00 UTC by a client. If it registers before 2000-01-01 00:10:00 UTC it is in quarantine, by ops (deploy 12).",
			"\nquarantined: taken out of every list for 10m by ops (deploy 12)" +
				"\ncanceled: canceled by a client"},
		{"canceled in a quarantine that is over", "gone",
			func(t *testing.T, n *bubbled) {
				n.Perform(t, registry.Quarantine{Key: keyOf("i1"), For: minute, By: ops}, registry.Cancel{Key: keyOf("i1")})
				time.Sleep(2 * time.Minute)
			},
			"ORDERS/i1 is gone: it was canceled at 2000-01-01 00:00:00 UTC by a client.",
			"\nquarantined: taken out of every list for 1m by ops (deploy 12)" +
				"\ncanceled: canceled by a client"},
		{"without a lease", "listed",
			func(t *testing.T, n *bubbled) {
				n.Perform(t, throughConsul("i1"))
				time.Sleep(time.Hour)
				n.Perform(t, registry.SetCheck{Check: "i1", Status: catalog.Critical})
			},
			"ORDERS/i1 is listed as DOWN. It has no lease: it was registered through Consul's API, and stays until it is deregistered.",
			"\nregistered again: registered again as UP by a client" +
				"\nstatus changed: status became DOWN by a client"},
		{"gone because its check was critical", "gone",
			func(t *testing.T, n *bubbled) {
				n.Perform(t, throughConsul("i1"), registry.SetCheck{Check: "i1", Status: catalog.Critical})
				time.Sleep(61 * time.Second)
				n.Lead()
			},
			"ORDERS/i1 is gone: it was canceled at 2000-01-01 00:01:01 UTC, because its check i1 was critical for too long.",
			"\nregistered again: registered again as UP by a client" +
				"\nstatus changed: status became DOWN by a client" +
				"\ncanceled: deregistered by  (its check i1 was critical for too long)"},
		{"a long life", "listed",
			func(t *testing.T, n *bubbled) {
				for range 3 {
					time.Sleep(80 * time.Second)
					n.Perform(t, registry.Renew{Key: keyOf("i1")})
				}
				n.Perform(t, registry.SetOverride{Key: keyOf("i1"), Status: registry.OutOfService, For: 1000, By: ops},
					registry.UpdateMetadata{Key: keyOf("i1"), Pairs: []registry.Pair{{Key: "a", Value: "b"}}},
					registry.Quarantine{Key: keyOf("i1"), For: 1000, By: ops})
				time.Sleep(2 * time.Second)
				n.Lead()
				later := changedLater(newInstance("ORDERS", "i1"))
				later.Status = registry.Down
				n.Perform(t, registry.Register{Instance: later}, registry.Register{Instance: newInstance("ORDERS", "i1")})
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
		inBubble(t, row.name, func(t *testing.T) {
			n := newBubbled(t, httpd.Config{})
			n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
			row.happens(t, n)
			e := n.explain(t, "i1")
			expect.That(t, e.State == row.state && e.Summary == row.summary, "%s: got  %s\nwant %s", e.State, e.Summary, row.summary)
			expect.Equal(t, e.story(), "registered: registered as UP by a client"+row.story, "the story is")
		})
	}
}

// fleet registers so many instances and lets time pass, in which only some of them renew.
func (n *bubbled) fleet(t *testing.T, all, renewing int, d time.Duration) {
	t.Helper()
	for i := range all {
		n.Perform(t, registry.Register{Instance: newInstance("FLEET", fmt.Sprint(i))})
	}
	for range int(d / (10 * time.Second)) {
		time.Sleep(10 * time.Second)
		for i := range renewing {
			n.Perform(t, registry.Renew{Key: registry.NewKey("FLEET", fmt.Sprint(i))})
		}
		n.Lead()
	}
}

func TestExplainHasTheFactsAsFields(t *testing.T) {
	withNode(t, func(t *testing.T, n *bubbled) {
		midnight := time.Now().UnixMilli()
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")},
			registry.SetOverride{Key: keyOf("i1"), Status: registry.OutOfService, For: 600_000, By: ops},
			registry.Quarantine{Key: keyOf("i1"), For: 60_000, By: ops})
		time.Sleep(10 * time.Second)
		e := n.explain(t, "i1")
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
		n.Perform(t, registry.Cancel{Key: keyOf("i1")})
		e = n.explain(t, "i1")
		expect.That(t, e.Status == "" && e.Removed != nil && e.Removed.Kind == "canceled" && e.Removed.At == midnight+10_000, "after the cancel: %+v", e)
		n.Set(func(m *registrytest.Memory) { m.Reported.Leads = false })
		expect.Equal(t, n.explain(t, "i1").Clock, "applied", "the clock of a follower is")
	})
}

func TestExplainIs404ForAnInstanceThatIsNotRemembered(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	n.send(t, request("GET", "/v1/rollcall/apps/ORDERS/i1/explain", "")).says(t, 404, `"error":"nothing is remembered of ORDERS/i1`, "it")
}
