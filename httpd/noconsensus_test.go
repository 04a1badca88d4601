package httpd_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// aloneConfig is of a node without consensus.
func aloneConfig() httpd.Config {
	return httpd.Config{Reads: web.ReadsStale, WithoutConsensus: true, Datacenter: "dc1"}
}

// newAlone starts a node without consensus that heard of another one 1.5 s ago.
func newAlone(t *testing.T, config httpd.Config) *node {
	t.Helper()
	n := newNode(t, config, nil)
	n.Set(func(m *registrytest.Memory) { m.Alone, m.Reported.Age = true, 1500*time.Millisecond })
	n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
	return n
}

// ownReads are the reads of our own API beside those of readRoutes.
var ownReads = []string{"/v1/rollcall/settings", "/v1/rollcall/self-preservation", "/v1/rollcall/apps/ORDERS/i1/explain"}

func TestWithoutConsensusFresherReadsAreNotOffered(t *testing.T) {
	n := newAlone(t, aloneConfig())
	for _, path := range append(append([]string{"/v1/rollcall/watch"}, readRoutes...), ownReads...) {
		for _, word := range []string{"linearizable", "leader"} {
			got := n.send(t, request("GET", path+"?consistency="+word, "")).says(t, http.StatusNotImplemented, "ask for consistency=stale", "GET %s %s", path, word)
			isJSON := json.Valid([]byte(got.body))
			expect.That(t, isJSON == strings.HasPrefix(path, "/v1/"), "GET %s %s: the body is %q", path, word, got.body)
		}
		if path == "/v1/rollcall/watch" {
			path += "?wait=0s"
		}
		n.send(t, request("GET", path, "")).says(t, http.StatusOK, "", "GET %s", path)
	}
}

// Whatever the setting is: a node without consensus answers with what it has.
func TestWithoutConsensusReadsAreStaleAndSaySo(t *testing.T) {
	for _, reads := range []web.EurekaReads{web.ReadsStale, web.ReadsLinearizable, web.ReadsStaleWithoutQuorum} {
		config := aloneConfig()
		config.Reads = reads
		n := newAlone(t, config)
		for _, path := range append(append([]string{}, readRoutes...), ownReads...) {
			got := n.send(t, request("GET", path, ""))
			word, age := got.header.Get("X-Rollcall-Consistency"), got.header.Get("X-Rollcall-Age")
			expect.That(t, got.status == http.StatusOK && word == "stale" && age == "1.500",
				"%v: GET %s: got %d, %s, age %s; want 200, stale, 1.500", reads, path, got.status, word, age)
		}
	}
}

func TestWithoutConsensusWatchesBeginAtOnce(t *testing.T) {
	n := newAlone(t, aloneConfig())
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
		n.send(t, request("GET", "/v1/rollcall/watch"+row.query, "")).says(t, row.status, "", "%s", row.name)
	}
}

func TestWithoutConsensusActsRespondWithTheNodesState(t *testing.T) {
	n := newAlone(t, aloneConfig())
	for _, row := range []struct{ method, path, says string }{
		{"PUT", "/v1/rollcall/apps/ORDERS/i1/override?value=DOWN", `"index":"test-2"`},
		{"PUT", "/v1/rollcall/apps/ORDERS/i1/quarantine?for=1m", `"index":"test-3"`},
		{"POST", "/v1/rollcall/self-preservation/hold?for=1m", `"state":"held"`},
	} {
		n.send(t, request(row.method, row.path, "")).says(t, http.StatusOK, row.says, "%s %s", row.method, row.path)
	}
	older := `{"replicationList":[{"appName":"ORDERS","id":"i1","action":"Heartbeat","lastDirtyTimestamp":1}]}`
	n.send(t, request("POST", "/eureka/peerreplication/batch/", older)).says(t, http.StatusOK, "", "a batch with a conflict")
}

func TestWithoutConsensusPagesNameNoLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newBubbled(t, aloneConfig())
		n.Set(func(m *registrytest.Memory) { m.Alone, m.Reported.Suspended = true, true })
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
		time.Sleep(2 * time.Minute) // virtual
		for _, row := range []struct {
			name         string
			ready        bool
			page, reason string
		}{
			{"loading", false, "is loading its state and answers no fetch yet", "It is not evicted because this node is still loading its state."},
			{"young", true, "too short a time to know which instances are alive", "It is not evicted yet because this node became ready too short a time ago to know which instances are alive."},
		} {
			n.Set(func(m *registrytest.Memory) { m.Reported.Ready = row.ready })
			e, page := n.explain(t, "i1"), n.get(t, "/").body
			expect.That(t, strings.HasSuffix(e.Summary, row.reason) && e.Clock == "running", "%s: by a %s clock it says %s", row.name, e.Clock, e.Summary)
			expect.That(t, strings.Contains(page, row.page) && !strings.Contains(page, "No leader") && !strings.Contains(page, "this leader"),
				"%s: the page has no %q, or tells of a leader", row.name, row.page)
		}
	})
}
