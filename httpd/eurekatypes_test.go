package httpd_test

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// acceptedTypes are the types of responses by what a client accepts.
var acceptedTypes = map[string]string{
	"application/json": "application/json", "application/json, application/*+json": "application/json",
	"application/xml": "application/xml", "*/*": "application/xml", "": "application/xml",
}

// typeCase is a way to send a request to a route of Eureka's, by which its response gets a status of its own.
type typeCase struct {
	name   string
	fail   error // of Apply and of reads
	change func(method, target, body string) (string, string, string)
	header string
	none   bool // no route is met, and a response without a body has no type
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

// target is the target of a route, with an instance that is there.
func (typeCase) target(path string) string {
	return strings.NewReplacer("{app}", "ORDERS", "{id}", "i1", "{vip}", "orders", "{svip}", "orders", "{asg}", "x").Replace(path) + "?"
}

func (c typeCase) send(t *testing.T, n *node, method, path, accept string) reply {
	t.Helper()
	n.Fail(nil)
	n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
	n.Set(func(m *registrytest.Memory) { m.ApplyErr, m.ViewErr = c.fail, c.fail })
	target, body := c.target(path), ""
	switch {
	case strings.HasSuffix(path, "/batch"):
		body = `{"replicationList":[]}`
	case method == http.MethodPost:
		body = instanceJSON
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
	return n.send(t, request(method, target, body, headers...))
}

// Every route of Eureka's in every case: a response without a body has the type that its client accepts, any other one of those that
// the protocol has. Where no route is met, a published server gives none.
func TestResponsesOfEurekaRoutesHaveTheTypeThatIsAccepted(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	empty := map[int]bool{}
	routes := 0
	for _, route := range n.handler.Routes(t) {
		method, path, _ := strings.Cut(route, " ")
		if !strings.HasPrefix(path, "/eureka/") || strings.HasPrefix(path, "/eureka/v") {
			continue // the other base paths have the same table
		}
		routes++
		for _, c := range typeCases {
			for accept, want := range acceptedTypes {
				got := c.send(t, n, method, path, accept)
				kind, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
				if got.body == "" && method != http.MethodHead {
					empty[got.status] = true
					if c.none && (got.status != 414 || route != "PUT /eureka/apps/{app}/{id}") { // heartbeats are known before their length
						want = ""
					}
					expect.Equal(t, kind, want, "%s with %s, accepting %q: %d without a body has the type", route, c.name, accept, got.status)
					continue
				}
				expect.That(t, kind == want || kind == "application/json" || got.status >= 400 && kind == "text/plain", "%s with %s, accepting %q: %d has the type %q", route, c.name, accept, got.status, kind)
			}
		}
	}
	need.That(t, routes >= 16, "there are only %d routes", routes)
	for _, status := range []int{200, 204, 400, 404, 405, 414, 500, 503, 504} {
		expect.That(t, empty[status], "no response without a body had the status %d, only %v", status, slices.Sorted(maps.Keys(empty)))
	}
}

// On a connection that carries heartbeats the form that is accepted may change from one to the next.
func TestHeartbeatsAreAnsweredWithTheTypeThatEachAccepts(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	l := n.takenOver(t)
	for range 2 {
		for accept, want := range acceptedTypes {
			field := "Accept: " + accept
			if accept == "" {
				field = "X-Other: a"
			}
			for _, beat := range []string{plainHeartbeat, strings.Replace(plainHeartbeat, "i1", "none", 1), strings.Replace(plainHeartbeat, " HTTP", "?lastDirtyTimestamp=x HTTP", 1)} {
				got := l.roundTrip(t, strings.Replace(beat, "Accept: */*", field, 1))
				expect.That(t, got.body == "" && got.header.Get("Content-Type") == want, "accepting %q: got %d with %q, want %q", accept, got.status, got.header.Get("Content-Type"), want)
				expect.That(t, n.handler.TookOver(l.LocalAddr().String()), "the connection was given back")
			}
		}
	}
}
