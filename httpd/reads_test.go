package httpd_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// readRoutes are all routes whose response comes from the registry.
var readRoutes = []string{
	"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/ORDERS", "/eureka/apps/ORDERS/i1", "/eureka/instances/i1",
	"/eureka/vips/orders", "/eureka/svips/orders", "/serverinfo/statusoverrides", "/v1/rollcall/apps", "/v1/rollcall/events",
}

func TestReadIsAsFreshAsConfiguredOrAskedFor(t *testing.T) {
	for _, row := range []struct {
		name   string
		config web.EurekaReads
		query  string
		quorum bool
		want   registry.Consistency
	}{
		{"the default", web.ReadsLinearizable, "", true, registry.Linearizable},
		{"asked for leader", web.ReadsLinearizable, "?consistency=leader", true, registry.Leader},
		{"asked for stale", web.ReadsLinearizable, "?consistency=stale", true, registry.Stale},
		{"configured stale", web.ReadsStale, "", true, registry.Stale},
		{"configured stale, asked for linearizable", web.ReadsStale, "?regions=a&consistency=linearizable", true, registry.Linearizable},
		{"stale without quorum, with quorum", web.ReadsStaleWithoutQuorum, "", true, registry.Linearizable},
		{"stale without quorum, without", web.ReadsStaleWithoutQuorum, "", false, registry.Stale},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := httpdtest.NewNode(t, httpd.Config{Reads: row.config}, nil)
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
			n.Set(func(m *fsmtest.Memory) {
				m.Reported.Quorum = row.quorum
				m.Reported.Age = 1234567 * time.Microsecond
				if !row.quorum {
					m.ViewErr = registry.ErrNoLeader
				}
			})
			for _, path := range readRoutes {
				got := n.Send(t, httpdtest.Request("GET", path+row.query, ""))
				need.Equal(t, got.Status, http.StatusOK, "GET %s: got", path)
				expect.Equal(t, got.Header.Get("X-Rollcall-Consistency"), row.want.String(), "GET %s: X-Rollcall-Consistency is", path)
				expect.Equal(t, got.Header.Get("X-Rollcall-Index"), "test-1", "GET %s: X-Rollcall-Index is", path)
				age := map[bool]string{true: "", false: "1.235"}[row.want == registry.Linearizable]
				expect.Equal(t, got.Header.Get("X-Rollcall-Age"), age, "GET %s: X-Rollcall-Age is", path)
			}
		})
	}
}

func TestReadWithoutAQuorumIs503UnlessStaleIsAllowed(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	for name, err := range map[string]error{"no leader": registry.ErrNoLeader, "closed": registry.ErrClosed, "too late": context.DeadlineExceeded} {
		n.Set(func(m *fsmtest.Memory) { m.ViewErr = err })
		for _, path := range readRoutes {
			got := n.Send(t, httpdtest.Request("GET", path, "")).Says(t, http.StatusServiceUnavailable, "", "%s: GET %s", name, path).With(t, "Retry-After", "1")
			expect.That(t, strings.HasPrefix(path, "/v1/") == strings.HasPrefix(got.Body, `{"error":`), "%s: GET %s: the body is %q", name, path, got.Body)
			expect.Equal(t, n.Send(t, httpdtest.Request("GET", path+"?consistency=stale", "")).Status, http.StatusOK, "%s: GET %s stale: got", name, path)
		}
	}
}

func TestReadOfListsIsRefusedUntilTheRegistryIsLoaded(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	n.Set(func(m *fsmtest.Memory) { m.Reported.Ready = false })
	for path, want := range map[string]int{
		"/eureka/apps": 403, "/eureka/apps/delta": 403, "/eureka/apps/ORDERS": 403, "/eureka/vips/orders": 403, "/eureka/svips/orders": 403,
		"/eureka/apps/ORDERS/i1": 200, "/eureka/instances/i1": 200, "/eureka/status": 200,
		"/readyz": 503, "/healthz": 200, "/": 200,
	} {
		got := n.Send(t, httpdtest.Request("GET", path, ""))
		expect.Equal(t, got.Status, want, "GET %s: got", path)
		expect.That(t, want != 403 || got.Body == "", "GET %s: the body is %q, want none", path, got.Body)
	}
	expect.Equal(t, n.Send(t, httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", "")).Status, 200, "a heartbeat: got")
	n.Set(func(m *fsmtest.Memory) { m.Reported.Ready = true })
	for _, path := range []string{"/eureka/apps", "/readyz"} {
		expect.Equal(t, n.Send(t, httpdtest.Request("GET", path, "")).Status, 200, "GET %s when loaded: got", path)
	}
}

// writeRoutes are all routes that change the registry.
var writeRoutes = []string{
	httpdtest.Register(httpdtest.InstanceJSON),
	httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", ""),
	httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1/", ""),
	httpdtest.Request("DELETE", "/eureka/apps/ORDERS/i1", ""),
	httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1/status?value=DOWN", ""),
	httpdtest.Request("DELETE", "/eureka/apps/ORDERS/i1/status", ""),
	httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1/metadata?a=b", ""),
}

const batchJSON = `{"replicationList":[{"appName":"A","id":"1","action":"Heartbeat"}]}`

func TestWriteOfUnknownOutcomeIsNeitherSuccessNorFailure(t *testing.T) {
	for _, row := range []struct {
		name                 string
		err                  error
		status, batch        int
		retry, outcome       string
		batchRetry, batchOut string
	}{
		{"no leader", registry.ErrNoLeader, 503, 503, "1", "", "1", ""},
		{"shutting down", registry.ErrClosed, 503, 503, "1", "", "1", ""},
		{"unknown", registry.ErrUnknownOutcome, 504, 503, "", "unknown", "1", "unknown"},
		{"too late", context.DeadlineExceeded, 504, 503, "", "unknown", "1", "unknown"},
		{"gone", context.Canceled, 504, 503, "", "unknown", "1", "unknown"},
		{"too large", registry.ErrTooLarge, 413, 413, "", "", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := httpdtest.NewNode(t, httpd.Config{}, nil)
			n.Set(func(m *fsmtest.Memory) { m.ApplyErr = row.err })
			check := func(r string, status int, retry, outcome string) {
				t.Helper()
				got := n.Send(t, r).Is(t, status, "", "%.50q", r)
				expect.Equal(t, got.Header.Get("Retry-After"), retry, "%.50q: Retry-After is", r)
				expect.Equal(t, got.Header.Get("X-Rollcall-Outcome"), outcome, "%.50q: X-Rollcall-Outcome is", r)
			}
			for _, r := range writeRoutes {
				check(r, row.status, row.retry, row.outcome)
			}
			check(httpdtest.Request("POST", "/eureka/peerreplication/batch", batchJSON), row.batch, row.batchRetry, row.batchOut)
		})
	}
}

func TestWriteNamesTheVersionThatItMade(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	for _, row := range []struct{ request, want string }{
		{httpdtest.Register(httpdtest.InstanceJSON), "test-1"},
		{httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", ""), ""},
		{httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1/status?value=DOWN", ""), "test-2"},
		{httpdtest.Request("DELETE", "/eureka/apps/ORDERS/i1/status?value=UP", ""), "test-3"},
		{httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1/metadata?a=b", ""), "test-4"},
		{httpdtest.Request("DELETE", "/eureka/apps/ORDERS/i1", ""), "test-5"},
	} {
		expect.Equal(t, n.Send(t, row.request).Header.Get("X-Rollcall-Index"), row.want, "%.60q: X-Rollcall-Index is", row.request)
	}
}

func TestBatchIsOneOperation(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	item := `{"appName":"A","id":"1","action":"Heartbeat"}`
	body := `{"replicationList":[` + strings.Repeat(item+",", 249) + item + `]}`
	need.Equal(t, n.Send(t, httpdtest.Request("POST", "/eureka/peerreplication/batch/", body)).Status, 200, "got")
	expect.Equal(t, n.Count(), 1, "calls of the service:")
}

func TestBatchMayBeEightMiB(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	pad := func(size int) string {
		body := `{"replicationList":[{"appName":"A","id":"1","action":"Heartbeat"}]}`
		return body + strings.Repeat(" ", size-len(body))
	}
	expect.Equal(t, n.Send(t, httpdtest.Request("POST", "/eureka/peerreplication/batch/", pad(8<<20))).Status, 200, "8 MiB: got")
	expect.Equal(t, n.Send(t, httpdtest.Request("POST", "/eureka/peerreplication/batch/", pad(8<<20+1))).Status, 413, "8 MiB and a byte: got")
	var items []string
	for i := range 1000 {
		items = append(items, `{"appName":"A","id":"host-`+httpdtest.Decimal(i*7919)+`:a:8080","lastDirtyTimestamp":`+httpdtest.Decimal(1_700_000_000_000+i*104729)+`,"action":"Heartbeat"}`)
	}
	many := `{"replicationList":[` + strings.Join(items, ",") + `]}`
	expect.Equal(t, n.Send(t, httpdtest.Request("POST", "/eureka/peerreplication/batch/", httpdtest.Gzipped(many), "Content-Encoding: gzip")).Status, 200,
		"1,000 items, compressed: got")
	n.Send(t, httpdtest.Request("POST", "/eureka/peerreplication/batch/", httpdtest.Gzipped(`{"replicationList":[`+strings.Repeat("{},", 1000)+`{}]}`), "Content-Encoding: gzip")).Is(t, 413, "the batch has more than 1000 items; send them in several", "1,001 items")
}

func TestBatchItemsOverTheQuotaAreRefusedSingly(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Limits: web.Limits{InstancesInApp: 1}}, nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i0")})
	instance := strings.TrimSuffix(strings.TrimPrefix(httpdtest.InstanceJSON, `{"instance":`), "}")
	body := `{"replicationList":[{"appName":"ORDERS","id":"i1","action":"Register","instanceInfo":` + instance + `},{"appName":"ORDERS","id":"i0","action":"Heartbeat"}]}`
	n.Send(t, httpdtest.Request("POST", "/eureka/peerreplication/batch", body)).Is(t, 200, `{"responseList":[{"statusCode":429},{"statusCode":200}]}`, "it")
}

func TestReadOfListsIsRefusedForATimeAfterAnEmptyStart(t *testing.T) {
	for _, row := range []struct {
		name   string
		wait   time.Duration
		full   bool // something was loaded
		cached bool
		closed time.Duration // after the node became ready
	}{
		{"by default not at all", 0, false, false, 0},
		{"nothing was loaded", time.Minute, false, false, time.Minute},
		{"nothing was loaded, with the read-only cache", time.Minute, false, true, time.Minute},
		{"something was loaded", time.Minute, true, false, 0},
	} {
		httpdtest.InBubble(t, row.name, func(t *testing.T) {
			n := httpdtest.NewBubbled(t, httpd.Config{WaitWhenEmpty: row.wait, ReadOnlyCache: row.cached})
			n.Set(func(m *fsmtest.Memory) { m.Reported.Ready = false })
			expect.Equal(t, n.Get(t, "/eureka/apps").Status, 403, "while it loads: got")
			time.Sleep(time.Hour) // virtual; the time of loading does not count
			if row.full {
				n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
			}
			n.Set(func(m *fsmtest.Memory) { m.Reported.Ready = true })
			need.Equal(t, n.Send(t, "POST", "/eureka/apps/ORDERS", httpdtest.InstanceJSON, "Content-Type: application/json").Status, 204, "a registration: got")
			n.WantFetches(t, row.closed == 0)
			if row.closed > 0 {
				time.Sleep(row.closed - time.Millisecond) // virtual
				n.WantFetches(t, false)
				time.Sleep(time.Millisecond) // virtual
				n.WantFetches(t, true)
			}
			n.Perform(t, registry.Cancel{Key: httpdtest.KeyOf("i1")}, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i2")})
			n.WantFetches(t, true) // once open it stays open
		})
	}
}

// newAlone starts a node without consensus that heard from another one 1.5 s ago.
func newAlone(t *testing.T, config httpd.Config) *httpdtest.Node {
	t.Helper()
	n := httpdtest.NewNode(t, config, nil)
	n.Set(func(m *fsmtest.Memory) { m.Alone, m.Reported.Age = true, 1500*time.Millisecond })
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	return n
}

// ownReads are the reads of our own API that readRoutes lacks.
var ownReads = []string{"/v1/rollcall/settings", "/v1/rollcall/self-preservation", "/v1/rollcall/apps/ORDERS/i1/explain"}

func TestWithoutConsensusFresherReadsAreNotOffered(t *testing.T) {
	n := newAlone(t, httpdtest.AloneConfig())
	for _, path := range append(append([]string{"/v1/rollcall/watch"}, readRoutes...), ownReads...) {
		for _, word := range []string{"linearizable", "leader"} {
			got := n.Send(t, httpdtest.Request("GET", path+"?consistency="+word, "")).Says(t, http.StatusNotImplemented, "ask for consistency=stale", "GET %s %s", path, word)
			expect.Equal(t, json.Valid([]byte(got.Body)), strings.HasPrefix(path, "/v1/"), "GET %s %s: the body is %q:", path, word, got.Body)
		}
		if path == "/v1/rollcall/watch" {
			path += "?wait=0s"
		}
		n.Send(t, httpdtest.Request("GET", path, "")).Says(t, http.StatusOK, "", "GET %s", path)
	}
}

// Whatever the setting, a node without consensus answers with what it has.
func TestWithoutConsensusReadsAreStaleAndSaySo(t *testing.T) {
	for _, reads := range []web.EurekaReads{web.ReadsStale, web.ReadsLinearizable, web.ReadsStaleWithoutQuorum} {
		config := httpdtest.AloneConfig()
		config.Reads = reads
		n := newAlone(t, config)
		for _, path := range append(append([]string{}, readRoutes...), ownReads...) {
			got := n.Send(t, httpdtest.Request("GET", path, ""))
			word, age := got.Header.Get("X-Rollcall-Consistency"), got.Header.Get("X-Rollcall-Age")
			expect.That(t, got.Status == http.StatusOK && word == "stale" && age == "1.500",
				"%v: GET %s: got %d, %s, age %s; want 200, stale, 1.500", reads, path, got.Status, word, age)
		}
	}
}

func TestWithoutConsensusWatchesBeginAtOnce(t *testing.T) {
	n := newAlone(t, httpdtest.AloneConfig())
	for _, row := range []struct {
		name, query string
		status      int
	}{
		{"from now", "?wait=0s", 200},
		{"from now, stale", "?wait=0s&consistency=stale", 200},
		{"from an index", "?wait=0s&index=test-0", 200},
		{"from an index that has not happened", "?wait=0s&index=test-2", 400},
		{"from an index of another history", "?wait=0s&index=node2-1", 410},
	} {
		n.Send(t, httpdtest.Request("GET", "/v1/rollcall/watch"+row.query, "")).Says(t, row.status, "", "%s", row.name)
	}
}

func TestWithoutConsensusActsRespondWithTheNodesState(t *testing.T) {
	n := newAlone(t, httpdtest.AloneConfig())
	for _, row := range []struct{ method, path, says string }{
		{"PUT", "/v1/rollcall/apps/ORDERS/i1/override?value=DOWN", `"index":"test-2"`},
		{"PUT", "/v1/rollcall/apps/ORDERS/i1/quarantine?for=1m", `"index":"test-3"`},
		{"POST", "/v1/rollcall/self-preservation/hold?for=1m", `"state":"held"`},
	} {
		n.Send(t, httpdtest.Request(row.method, row.path, "")).Says(t, http.StatusOK, row.says, "%s %s", row.method, row.path)
	}
	older := `{"replicationList":[{"appName":"ORDERS","id":"i1","action":"Heartbeat","lastDirtyTimestamp":1}]}`
	n.Send(t, httpdtest.Request("POST", "/eureka/peerreplication/batch/", older)).Says(t, http.StatusOK, "", "a batch with a conflict")
}

func TestWithoutConsensusPagesNameNoLeader(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpdtest.AloneConfig())
		n.Set(func(m *fsmtest.Memory) { m.Alone, m.Reported.Suspended = true, true })
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		time.Sleep(2 * time.Minute) // virtual
		for _, row := range []struct {
			name         string
			ready        bool
			page, reason string
		}{
			{"loading", false, "is loading its state and answers no fetch yet", "It is not evicted because this node is still loading its state."},
			{"young", true, "too short a time to know which instances are alive", "It is not evicted yet because this node became ready too short a time ago to know which instances are alive."},
		} {
			n.Set(func(m *fsmtest.Memory) { m.Reported.Ready = row.ready })
			e, page := n.Explain(t, "i1"), n.Get(t, "/").Body
			expect.That(t, strings.HasSuffix(e.Summary, row.reason) && e.Clock == "running", "%s: by a %s clock it says %s", row.name, e.Clock, e.Summary)
			expect.That(t, strings.Contains(page, row.page) && !strings.Contains(page, "No leader") && !strings.Contains(page, "this leader"),
				"%s: the page has no %q, or tells of a leader", row.name, row.page)
		}
	})
}

func TestReadyzSaysWhichPartIsNot(t *testing.T) {
	for name, tc := range map[string]struct {
		health    registry.Health
		ap, drain bool
		want      map[string]int // status by query
		says      string         // in the lines of verbose output
	}{
		"all well":           {health: registry.Health{Ready: true, Quorum: true}, want: map[string]int{"": 200, "?writes": 200, "?verbose": 200, "?writes&verbose": 200}, says: "running: ok\nstate: ok\nwrites: ok\n"},
		"no leader is known": {health: registry.Health{Ready: true}, want: map[string]int{"": 200, "?writes": 503, "?verbose": 200, "?writes&verbose": 503}, says: "state: ok\nwrites: no leader is known"},
		"without consensus":  {health: registry.Health{Ready: true}, ap: true, want: map[string]int{"": 200, "?writes": 200, "?verbose": 200, "?writes&verbose": 200}, says: "running: ok\nstate: ok\n"},
		"still loading":      {health: registry.Health{Quorum: true}, want: map[string]int{"": 503, "?writes": 503, "?verbose": 503, "?writes&verbose": 503}, says: "state: the node is still loading"},
		"shutting down":      {health: registry.Health{Ready: true, Quorum: true}, drain: true, want: map[string]int{"": 503, "?writes": 503, "?verbose": 503, "?writes&verbose": 503}, says: "running: the node is shutting down\nstate: ok\nwrites: ok\n"},
	} {
		n := httpdtest.NewNode(t, httpd.Config{WithoutConsensus: tc.ap}, nil)
		n.Set(func(m *fsmtest.Memory) { m.Reported = tc.health })
		if tc.drain {
			n.Handler.Drain()
			expect.Equal(t, n.Send(t, httpdtest.Request("GET", "/eureka/apps", "")).Status, 200, "%s: a list:", name)
		}
		for query, want := range tc.want {
			got := n.Send(t, httpdtest.Request("GET", "/readyz"+query, ""))
			expect.Equal(t, got.Status, want, "%s: GET /readyz%s:", name, query)
			expect.That(t, !strings.Contains(query, "verbose") || strings.Contains(got.Body, tc.says), "%s: GET /readyz%s says %q, want %q in it", name, query, got.Body, tc.says)
		}
	}
}
