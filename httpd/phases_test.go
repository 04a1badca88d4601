package httpd_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/kv/kvtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// readRow is a row of the table of routes in docs/reference/reads.md.
var readRow = regexp.MustCompile("(?m)^\\| `GET (/[^`]*)` \\| (the state|this node|people) \\|")

// shownByRoutes returns what each reading route shows, as the page says.
func shownByRoutes(t *testing.T) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for _, m := range readRow.FindAllStringSubmatch(string(need.Got(os.ReadFile("../docs/reference/reads.md"))(t)), -1) {
		rows[m[1]] = m[2]
	}
	return rows
}

// lifePhase is what a node knows of the others, and which reads it refuses then.
type lifePhase struct {
	name   string
	health registry.Health
	view   error // of reads that are not stale
	stale  bool  // stale reads are refused, too
}

var lifePhases = []lifePhase{
	{name: "following", health: registry.Health{Ready: true, Quorum: true}},
	{name: "no leader heard", health: registry.Health{Unheard: true}, view: registry.ErrNoLeader, stale: true},
	{name: "replaying", health: registry.Health{Unheard: true, Quorum: true}, view: registry.ErrNoLeader, stale: true},
	{name: "leader lost", health: registry.Health{Ready: true}, view: registry.ErrNoLeader},
	{name: "stopping", health: registry.Health{Ready: true, Quorum: true}, view: registry.ErrClosed},
}

// freshness are the ways to ask a route how fresh its response is to be, by whether it may be stale then.
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

// ask sends a read by the socket in the data directory.
func (p lifePhase) ask(n *bubbled, target string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, r.WithContext(web.AsAdministrator(r.Context())))
	return w
}

// refused reports whether a response says that there is no leader, in its API's form.
func (p lifePhase) refused(path string, got *httptest.ResponseRecorder) bool {
	switch {
	case web.FormOfPath(path) == web.ConsulForm:
		return got.Code == http.StatusInternalServerError && (got.Body.String() == "No cluster leader" || p.view == registry.ErrClosed)
	case got.Code == http.StatusForbidden: // a published server that is not ready
		return strings.HasPrefix(path, "/eureka/") && !p.health.Ready
	}
	return got.Code == http.StatusServiceUnavailable && got.Header().Get("Retry-After") == "1"
}

func TestEachReadInEachPhaseSaysWhatThePageSays(t *testing.T) {
	shown := shownByRoutes(t)
	for _, p := range lifePhases {
		t.Run(p.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := registrytest.New()
				l := kvtest.New(m)
				n := newBubbled(t, httpd.Config{Service: m, Coordination: l, Agents: httpd.OneAgent, Access: httpd.AccessConfig{Table: l.AccessTable}})
				m.Set(func(m *registrytest.Memory) { m.Reported, m.ViewErr, l.ViewErr = p.health, p.view, p.view })
				for _, route := range n.handler.Routes(t) {
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
func (p lifePhase) reads(t *testing.T, n *bubbled, path string) {
	t.Helper()
	target := strings.NewReplacer("{state}", "any", "{node}", "rollcall").Replace(path)
	target = regexp.MustCompile(`{\w+}`).ReplaceAllString(target, "x") + "?wait=1ms&"
	for words, stale := range freshness(path) {
		got := p.ask(n, target+words)
		want := p.view != nil && (!stale || p.stale)
		expect.Equal(t, p.refused(path, got), want, "GET %s%s is refused: %d %s", target, words, got.Code, got.Body)
		if !stale || !p.stale {
			continue
		}
		got = p.ask(n, target+words+"&unheard=true")
		expect.That(t, !p.refused(path, got) && got.Header().Get("X-Rollcall-Unheard") == "true",
			"GET %s%s with unheard: %d %s, marked %q", target, words, got.Code, got.Body, got.Header().Get("X-Rollcall-Unheard"))
	}
}

func TestUnheardIsRefusedToOthersThanTheAdministrator(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	n.Set(func(m *registrytest.Memory) { m.Reported = registry.Health{Unheard: true} })
	got := n.call(t, http.MethodGet, "/v1/rollcall/apps?consistency=stale&unheard=true", "")
	expect.That(t, got.status == http.StatusBadRequest && strings.Contains(got.body, "admin.sock"), "got %d %s", got.status, got.body)
}
