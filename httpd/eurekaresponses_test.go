package httpd_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// acceptedTypes maps what a client accepts to the type of the response.
var acceptedTypes = map[string]string{
	"application/json": "application/json", "application/json, application/*+json": "application/json",
	"application/xml": "application/xml", "*/*": "application/xml", "": "application/xml",
}

// typeCase is a way to call a route of Eureka's that gives its response a particular status.
type typeCase struct {
	name   string
	fail   error // error of Apply and of reads
	change func(method, target, body string) (string, string, string)
	header string
	none   bool // no route matches, and a response without a body has no type
}

var typeCases = []typeCase{
	{name: "as it is meant"},
	{name: "what is not there", change: func(m, target, body string) (string, string, string) {
		return m, strings.NewReplacer("ORDERS", "NONE", "i1", "none").Replace(target), body
	}},
	{name: "no leader", fail: registry.ErrNoLeader},
	{name: "an unknown outcome", fail: registry.ErrUnknownOutcome},
	{name: "a fault", fail: errors.New("broken")},
	{name: "a full node", fail: registry.ErrFull},
	{name: "40 parameters", change: func(m, target, body string) (string, string, string) {
		return m, target + strings.Repeat("a=b&", 40), body
	}},
	{name: "a long target", none: true, change: func(m, target, body string) (string, string, string) {
		return m, target + strings.Repeat("a", 3000), body
	}},
	{name: "another method", none: true, change: func(_, target, body string) (string, string, string) { return "PATCH", target, body }},
	{name: "a deeper path", none: true, change: func(m, target, body string) (string, string, string) {
		return m, strings.Replace(target, "?", "/a/b/c?", 1), body
	}},
	{name: "a broken body", change: func(m, target, _ string) (string, string, string) { return m, target, "{" }},
	{name: "a coding that is none", header: "Content-Encoding: br", change: func(m, target, _ string) (string, string, string) { return m, target, "{}" }},
	{name: "a path that is none", none: true, change: func(m, target, body string) (string, string, string) {
		return m, strings.Replace(target, "?", "/%zz?", 1), body
	}},
}

// target returns the target of a route, with an existing instance.
func (typeCase) target(path string) string {
	return strings.NewReplacer("{app}", "ORDERS", "{id}", "i1", "{vip}", "orders", "{svip}", "orders", "{asg}", "x").Replace(path) + "?"
}

func (c typeCase) send(t *testing.T, n *httpdtest.Node, method, path, accept string) httpdtest.Reply {
	t.Helper()
	n.Fail(nil)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	n.Set(func(m *fsmtest.Memory) { m.ApplyErr, m.ViewErr = c.fail, c.fail })
	target, body := c.target(path), ""
	switch {
	case strings.HasSuffix(path, "/batch"):
		body = `{"replicationList":[]}`
	case method == http.MethodPost:
		body = httpdtest.InstanceJSON
	case method == http.MethodPut && strings.HasSuffix(path, "/status"):
		target += "value=DOWN&"
	}
	if c.change != nil {
		method, target, body = c.change(method, target, body)
	}
	headers := []string{"Content-Type: application/json"}
	if accept != "" {
		headers = append(headers, "Accept: "+accept)
	}
	if c.header != "" {
		headers = append(headers, c.header)
	}
	return n.Send(t, httpdtest.Request(method, target, body, headers...))
}

// Every route of Eureka's in every case: a response without a body has the type that its client accepts, any other one
// of the protocol's types. Where no route matches, a published server sends none.
func TestResponsesOfEurekaRoutesHaveTheTypeThatIsAccepted(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	empty := map[int]bool{}
	routes := 0
	for _, route := range n.Handler.Routes(t) {
		method, path, _ := strings.Cut(route, " ")
		if !strings.HasPrefix(path, "/eureka/") || strings.HasPrefix(path, "/eureka/v") {
			continue // the other base paths have the same table
		}
		routes++
		for _, c := range typeCases {
			for accept, want := range acceptedTypes {
				got := c.send(t, n, method, path, accept)
				kind, _, _ := strings.Cut(got.Header.Get("Content-Type"), ";")
				if got.Body == "" && method != http.MethodHead {
					empty[got.Status] = true
					// heartbeats are recognized before their length is checked
					if c.none && (got.Status != 414 || route != "PUT /eureka/apps/{app}/{id}") {
						want = ""
					}
					expect.Equal(t, kind, want, "%s with %s, accepting %q: %d without a body has the type", route, c.name, accept, got.Status)
					continue
				}
				expect.That(t, kind == want || kind == "application/json" || got.Status >= 400 && kind == "text/plain", "%s with %s, accepting %q: %d has the type %q", route, c.name, accept, got.Status, kind)
			}
		}
	}
	need.That(t, routes >= 16, "there are only %d routes", routes)
	for _, status := range []int{200, 204, 400, 404, 405, 414, 500, 503, 504} {
		expect.That(t, empty[status], "no response without a body had the status %d, only %v", status, slices.Sorted(maps.Keys(empty)))
	}
}

// On a connection that carries heartbeats the accepted format may change from one to the next.
func TestHeartbeatsAreAnsweredWithTheTypeThatEachAccepts(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	l := takenOver(t, n)
	for range 2 {
		for accept, want := range acceptedTypes {
			field := "Accept: " + accept
			if accept == "" {
				field = "X-Other: a"
			}
			for _, beat := range []string{httpdtest.PlainHeartbeat, strings.Replace(httpdtest.PlainHeartbeat, "i1", "none", 1), strings.Replace(httpdtest.PlainHeartbeat, " HTTP", "?lastDirtyTimestamp=x HTTP", 1)} {
				got := l.RoundTrip(t, strings.Replace(beat, "Accept: */*", field, 1))
				expect.That(t, got.Body == "" && got.Header.Get("Content-Type") == want, "accepting %q: got %d with %q, want %q", accept, got.Status, got.Header.Get("Content-Type"), want)
				expect.That(t, n.Handler.TookOver(l.LocalAddr().String()), "the connection was given back")
			}
		}
	}
}

// cachedRoutes are the routes that the read-only cache answers, each with a word that its response contains once
// ORDERS/i2 is registered.
var cachedRoutes = map[string]string{
	"/eureka/apps": "i2", "/eureka/apps/delta": "i2", "/eureka/apps/ORDERS": "i2", "/eureka/apps/orders": "i2",
	"/eureka/vips/orders": "i2", "/eureka/svips/orders": "i2", "/eureka/v1/apps/": "i2",
}

// toMultiple sleeps until the given time after the next multiple of 30 s since the epoch.
func toMultiple(after time.Duration) {
	const every = 30 * time.Second
	time.Sleep(every - time.Duration(time.Now().UnixNano())%every + after) // virtual
}

func secure(i *registry.Instance) *registry.Instance {
	i.SecureVIP = i.VIP
	return i
}

// A response that is read for the first time after a refresh dates from the refresh, if it was asked for before.
func TestReadOnlyCacheRefreshIsOfOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{ReadOnlyCache: true})
		n.Perform(t, registry.Register{Instance: secure(httpdtest.NewInstance("ORDERS", "i1"))})
		for path := range cachedRoutes {
			n.Send(t, "GET", path, "")
		}
		toMultiple(time.Second)
		n.Perform(t, registry.Register{Instance: secure(httpdtest.NewInstance("ORDERS", "i2"))})
		for path, word := range cachedRoutes {
			got := n.Send(t, "GET", path, "")
			expect.That(t, !strings.Contains(got.Body, word) && got.Header.Get("X-Rollcall-Index") == "test-1" && got.Header.Get("X-Rollcall-Age") == "1.000",
				"GET %s: got %v %s, want what there was a second ago", path, got.Header, got.Body)
			form := n.Send(t, "GET", path, "", "X-Eureka-Accept: compact", "Accept: application/json")
			expect.That(t, strings.Contains(form.Body, word) && form.Header.Get("X-Rollcall-Age") == "0.000",
				"GET %s in a form that was not asked for yet: got %v %s", path, form.Header, form.Body)
		}
	})
}

func TestReadOnlyCacheKeepsThatAnApplicationIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{ReadOnlyCache: true})
		toMultiple(time.Second)
		check := func(when string, want int) {
			t.Helper()
			got := n.Send(t, "GET", "/eureka/apps/ORDERS", "")
			expect.That(t, got.Status == want && got.Header.Get("X-Rollcall-Consistency") == "stale" && (want != 404 || got.Body == ""), "%s: got %d %q with %v, want %d", when, got.Status, got.Body, got.Header, want)
		}
		check("unknown", 404)
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		check("just registered", 404)
		toMultiple(time.Millisecond)
		check("after the multiple", 200)
		n.Perform(t, registry.Cancel{Key: registry.NewKey("ORDERS", "i1")})
		check("just cancelled", 200)
		toMultiple(time.Millisecond)
		check("after the next multiple", 404)
	})
}

func TestReadOnlyCacheIsPassedByWhereAConsistencyIsGiven(t *testing.T) {
	for _, row := range []struct {
		name, path string
		cached     bool // whether the configuration enables the cache
	}{
		{"linearizable", "/eureka/apps?consistency=linearizable", true},
		{"leader", "/eureka/apps/ORDERS?x=y&consistency=leader", true},
		{"stale", "/eureka/apps/delta?consistency=stale", true},
		{"an instance", "/eureka/apps/ORDERS/i1", true},
		{"an instance by its id", "/eureka/instances/i1", true},
		{"our own list", "/v1/rollcall/apps", true},
		{"off", "/eureka/apps", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := httpdtest.NewBubbled(t, httpd.Config{ReadOnlyCache: row.cached})
				n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
				for _, path := range []string{"/eureka/apps", "/eureka/apps/ORDERS", "/eureka/apps/delta", row.path} {
					n.Send(t, "GET", path, "")
				}
				changed := httpdtest.NewInstance("ORDERS", "i1")
				changed.HostName, changed.LastDirty = "host-changed", 2000
				n.Perform(t, registry.Register{Instance: changed})
				n.Send(t, "GET", row.path, "").Says(t, 200, "host-changed", "it").With(t, "X-Rollcall-Index", "test-2")
			})
		})
	}
	n := httpdtest.NewNode(t, httpd.Config{ReadOnlyCache: true}, nil)
	expect.Equal(t, n.Send(t, httpdtest.Request("GET", "/eureka/apps?consistency=fresh", "")).Status, 400, "an unknown consistency: got")
	n.Set(func(m *fsmtest.Memory) { m.Reported.Ready = false })
	expect.Equal(t, n.Send(t, httpdtest.Request("GET", "/eureka/apps", "")).Status, 403, "a registry that is still being loaded: got")
}

// Upstream's servers answer from their caches whatever happens around them.
func TestReadOnlyCacheRespondsWithoutAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{ReadOnlyCache: true})
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		n.Set(func(m *fsmtest.Memory) { m.ViewErr, m.Reported.Age = registry.ErrNoLeader, 3*time.Second })
		n.Send(t, "GET", "/eureka/apps", "").Says(t, 200, "", "it").With(t, "X-Rollcall-Consistency", "stale").With(t, "X-Rollcall-Age", "3.000")
	})
}

func TestReadOnlyCacheResponsesAreThoseWithoutIt(t *testing.T) {
	metrics := prometheus.NewRegistry()
	cached, fresh := httpdtest.NewNode(t, httpd.Config{ReadOnlyCache: true, Metrics: metrics}, nil), httpdtest.NewNode(t, httpd.Config{}, nil)
	for _, n := range []*httpdtest.Node{cached, fresh} {
		for i := range 20 {
			instance := secure(httpdtest.NewInstance("ORDERS", fmt.Sprint("i", i)))
			need.Got(n.Apply(t.Context(), registry.FromClient, registry.Register{Instance: instance}))(t)
		}
	}
	for path := range cachedRoutes {
		for _, form := range [][]string{{"Accept: application/json"}, {"Accept: application/xml"}, {"Accept: application/json", "X-Eureka-Accept: compact"}, {"Accept: application/json", "Accept-Encoding: gzip"}} {
			r := httpdtest.Request("GET", path, "", form...)
			got, want := cached.Send(t, r), fresh.Send(t, r)
			for _, name := range []string{"Content-Type", "Content-Encoding"} {
				expect.Equal(t, got.Header.Get(name), want.Header.Get(name), "GET %s %v: %s is", path, form, name)
			}
			if got, want := stable(t, got), stable(t, want); got != want {
				t.Errorf("GET %s %v: got %.300s, want %.300s", path, form, got, want)
			}
		}
	}
	expect.That(t, httpdtest.Gathered(t, metrics, "rollcall_http_documents_bytes", nil) != 0, "no bytes are counted")
}

// serverTimes are the times that a server sets, in either format.
var serverTimes = regexp.MustCompile(`((?:Timestamp|lastUpdatedTimestamp|lastDirtyTimestamp)"?[:>]"?)\d+`)

// stable returns the text of a response without the times, which differ between two servers.
func stable(t testing.TB, r httpdtest.Reply) string {
	t.Helper()
	text := r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		packed := need.Got(gzip.NewReader(strings.NewReader(text)))(t)
		all := need.Got(io.ReadAll(packed))(t)
		text = string(all)
	}
	return serverTimes.ReplaceAllString(text, "$1…")
}

func TestReadOnlyCacheBuildsAResponseOnceForEachVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		n := httpdtest.NewBubbled(t, httpd.Config{ReadOnlyCache: true, Metrics: metrics})
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		for round, want := range []float64{1, 1, 2} {
			for range 3 {
				n.Send(t, "GET", "/eureka/apps/ORDERS", "")
			}
			expect.Equal(t, httpdtest.Gathered(t, metrics, "rollcall_http_documents_built_total", map[string]string{"kind": "application"}), want, "round %d: answers were made so far:", round)
			if round == 1 {
				n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("OTHER", "i1")})
			}
			toMultiple(time.Second)
		}
	})
}

// The delta also changes with the lease clock: it gets shorter without any change to the registry.
func TestReadOnlyCacheDeltaForgetsChangesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{ReadOnlyCache: true})
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		for _, row := range []struct {
			wait  time.Duration
			shown bool
		}{{0, true}, {2 * time.Minute, true}, {2 * time.Minute, false}} {
			time.Sleep(row.wait) // virtual
			n.Perform(t, registry.Renew{Key: registry.NewKey("ORDERS", "i1")})
			toMultiple(time.Second)
			got := n.Send(t, "GET", "/eureka/apps/delta", "")
			expect.That(t, strings.Contains(got.Body, "i1") == row.shown && got.Header.Get("X-Rollcall-Index") == "test-1",
				"%v later: got %s with %v; shown should be %v", row.wait, got.Body, got.Header, row.shown)
		}
	})
}

func TestReadOnlyCacheIsBoundedAndForgetsUnusedResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := httpdtest.NewBubbled(t, httpd.Config{ReadOnlyCache: true})
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
		n.Send(t, "GET", "/eureka/apps/ORDERS", "")
		for i := range 5000 {
			need.Equal(t, n.Send(t, "GET", fmt.Sprint("/eureka/apps/JUNK", i), "").Status, 404, "junk: got")
		}
		if got := n.Handler.CachedAnswers(); got != 4096 {
			t.Errorf("%d answers are kept, want 4096", got)
		}
		n.Send(t, "GET", "/eureka/apps", "").Says(t, 200, "", "a read that finds the cache full").With(t, "X-Rollcall-Consistency", "linearizable")
		for range 12 {
			n.Send(t, "GET", "/eureka/apps/ORDERS", "")
			time.Sleep(time.Minute) // virtual
		}
		if got := n.Handler.CachedAnswers(); got != 1 {
			t.Errorf("%d answers are kept after 12 minutes, want the one that is used", got)
		}
		time.Sleep(12 * time.Minute) // virtual
		if got := n.Handler.CachedAnswers(); got != 0 {
			t.Errorf("%d responses are kept that no request asks for", got)
		}
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i2")})
		got := n.Send(t, "GET", "/eureka/apps/ORDERS", "")
		expect.That(t, strings.Contains(got.Body, "i2"), "a first read after all were forgotten: got %s", got.Body)
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i3")})
		toMultiple(time.Millisecond)
		n.Send(t, "GET", "/eureka/apps/ORDERS", "").Says(t, http.StatusOK, "i3", "after the next multiple")
	})
}
