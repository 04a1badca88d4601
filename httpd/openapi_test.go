package httpd

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/mux"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// openAPI is the part of docs/reference/openapi.yaml that the tests check.
type openAPI struct {
	OpenAPI   string                          `yaml:"openapi"`
	BasePaths []string                        `yaml:"x-base-paths"`
	Paths     map[string]map[string]yaml.Node `yaml:"paths"`
}

func readOpenAPI(t *testing.T) (doc openAPI, raw any) {
	t.Helper()
	file := need.Got(os.ReadFile("../docs/reference/openapi.yaml"))(t)
	need.OK(t, yaml.Unmarshal(file, &doc))
	need.OK(t, yaml.Unmarshal(file, &raw))
	return doc, raw
}

// routesOf lists the routes of a handler as METHOD template. HEAD, which goes with GET, is left out, and base paths
// are replaced by the one that the file uses.
func routesOf(t *testing.T, h *Handler) []string {
	t.Helper()
	found := map[string]bool{}
	collectRoutes(t, h, h.router, found)
	collectRoutes(t, h, h.verbatim, found)
	return slices.Sorted(maps.Keys(found))
}

func collectRoutes(t *testing.T, h *Handler, router *mux.Router, found map[string]bool) {
	t.Helper()
	err := router.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		template, err := route.GetPathTemplate()
		if err != nil {
			return err
		}
		methods, err := route.GetMethods()
		if err != nil {
			return nil // a base path
		}
		for _, method := range methods {
			if method != http.MethodHead {
				found[method+" "+withoutBase(h, strings.Replace(template, ":.*}", "}", 1))] = true
			}
		}
		return nil
	})
	need.OK(t, err)
}

func withoutBase(h *Handler, template string) string {
	for _, prefix := range h.appsPrefixes {
		base := strings.TrimSuffix(prefix, "/apps/")
		if rest, ok := strings.CutPrefix(template, base+"/"); ok {
			return "/eureka/" + rest
		}
	}
	return template
}

func TestOpenAPIHasEveryRoute(t *testing.T) {
	doc, _ := readOpenAPI(t)
	h := need.Got(New(Config{Service: fsmtest.New()}))(t)
	var documented []string
	for path, item := range doc.Paths {
		for method := range item {
			if method != "parameters" {
				documented = append(documented, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(documented)
	routes := routesOf(t, h)
	for _, route := range routes {
		if strings.Contains(route, " /ui") {
			continue // a page for people, whose address may change
		}
		expect.That(t, slices.Contains(documented, route), "docs/reference/openapi.yaml lacks %s", route)
	}
	for _, route := range documented {
		expect.That(t, slices.Contains(routes, route), "there is no route %s", route)
	}
	expect.That(t, slices.Equal(doc.BasePaths, DefaultBasePaths()), "x-base-paths is %v, want %v", doc.BasePaths, DefaultBasePaths())
}

// The routes matched by hand agree with the router's, under every base path.
func TestHeartbeatMatchedByHandIsARouteOfTheRouter(t *testing.T) {
	h := need.Got(New(Config{Service: fsmtest.New()}))(t)
	for _, base := range DefaultBasePaths() {
		target := &url.URL{Path: base + "/apps/A/i1"}
		app, id, ok := h.matchRenew(target)
		expect.That(t, ok && app == "A" && id == "i1", "%s is not recognized", target)
		var match mux.RouteMatch
		expect.That(t, h.router.Match(&http.Request{Method: http.MethodPut, URL: target}, &match) && match.MatchErr == nil,
			"the router does not have %s", target)
		template, _ := match.Route.GetPathTemplate()
		expect.That(t, template == base+"/apps/{app}/{id}", "the router has %s as %s", target, template)
	}
	for _, path := range []string{"/eureka/apps/A", "/eureka/apps/A/", "/eureka/apps//i1", "/eureka/apps/A/i1/status", "/eureka/apps/A/i1/", "/eureka/apps/A/..",
		"/eureka/apps/./i1", "/other/apps/A/i1", "/eureka/apps/A/\x00", "/eureka/apps/A/\xff", "/eureka/apps/A/" + strings.Repeat("i", 256)} {
		_, _, ok := h.matchRenew(&url.URL{Path: path})
		expect.That(t, !ok, "%q is taken for an ordinary heartbeat", path)
	}
	_, _, ok := h.matchRenew(&url.URL{Path: "/eureka/apps/A/a/b", RawPath: "/eureka/apps/A/a%2Fb"})
	expect.That(t, !ok, "an escaped slash is taken for an ordinary heartbeat")
}

func TestOpenAPIIsComplete(t *testing.T) {
	doc, raw := readOpenAPI(t)
	expect.That(t, strings.HasPrefix(doc.OpenAPI, "3.1."), "openapi is %q, want 3.1", doc.OpenAPI)
	ids := map[string]bool{}
	for path, item := range doc.Paths {
		for method, node := range item {
			if method == "parameters" {
				continue
			}
			var operation struct {
				OperationID string               `yaml:"operationId"`
				Summary     string               `yaml:"summary"`
				Responses   map[string]yaml.Node `yaml:"responses"`
			}
			need.OKf(t, node.Decode(&operation), "%s %s", method, path)
			expect.That(t, operation.OperationID != "" && !ids[operation.OperationID] && operation.Summary != "" && len(operation.Responses) != 0,
				"%s %s lacks an operationId of its own, a summary or responses", method, path)
			ids[operation.OperationID] = true
		}
		for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
			expect.That(t, hasPathParameter(raw, path, name[1]), "%s does not describe {%s}", path, name[1])
		}
	}
	eachRef(raw, func(ref string) {
		expect.That(t, resolve(raw, ref) != nil, "%s leads nowhere", ref)
	})
}

func hasPathParameter(raw any, path, name string) bool {
	parameters, _ := raw.(map[string]any)["paths"].(map[string]any)[path].(map[string]any)["parameters"].([]any)
	return slices.ContainsFunc(parameters, func(p any) bool {
		parameter := p.(map[string]any)
		if ref, ok := parameter["$ref"].(string); ok {
			parameter, _ = resolve(raw, ref).(map[string]any)
		}
		return parameter["in"] == "path" && parameter["name"] == name
	})
}

// resolve follows a reference inside the document, or returns nil if it leads nowhere.
func resolve(raw any, ref string) any {
	for key := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		object, ok := raw.(map[string]any)
		if !ok {
			return nil
		}
		raw = object[key]
	}
	return raw
}

func eachRef(node any, visit func(ref string)) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if key == "$ref" {
				visit(fmt.Sprint(value))
				continue
			}
			eachRef(value, visit)
		}
	case []any:
		for _, value := range node {
			eachRef(value, visit)
		}
	}
}

// docs/reference/openapi.yaml describes the documents of our own API as package api declares them, field by field.
func TestOpenAPIHasTheDocumentsOfPackageAPI(t *testing.T) {
	_, raw := readOpenAPI(t)
	const body = "content application/json schema"
	compare := func(at string, document any) {
		t.Helper()
		schema := descend(raw, raw, strings.Fields(at)...)
		for _, d := range differences(raw, schema, reflect.TypeOf(document)) {
			t.Errorf("%s: %s", at, d)
		}
	}
	// The format of messages between servers is internal, and the settings have a row each.
	others := []string{"/v1/rollcall/replication", "/v1/rollcall/replication/digest", "/v1/rollcall/replication/state", "/v1/rollcall/settings"}
	for route, document := range own.Documents() {
		method, path, _ := strings.Cut(route, " ")
		at := fmt.Sprintf("paths %s %s responses 200 %s", path, strings.ToLower(method), body)
		switch {
		case document != nil:
			compare(at, document)
		case strings.HasPrefix(path, "/v1/rollcall/") && !slices.Contains(others, path) && descend(raw, raw, strings.Fields(at)...) != nil:
			t.Errorf("%s: the route's row says nothing of it", at)
		}
	}
	compare("paths /v1/rollcall/sessions post requestBody "+body, api.SessionRequest{})
	compare("paths /v1/rollcall/overview get responses 200 "+body, api.Overview{})
	compare("components schemas Change", api.Change{})
	compare("components schemas Error", api.Error{})
}

// descend goes down a document from node along keys, following every reference, and returns nil where there is
// nothing.
func descend(raw, node any, keys ...string) any {
	for {
		object, _ := node.(map[string]any)
		if ref, ok := object["$ref"].(string); ok {
			node = resolve(raw, ref)
			continue
		}
		if len(keys) == 0 || object == nil {
			return node
		}
		node, keys = object[keys[0]], keys[1:]
	}
}

// differences lists where a schema differs from encoding/json's form of a type.
func differences(raw, node any, of reflect.Type) []string {
	if of == reflect.TypeFor[json.RawMessage]() {
		return nil // another protocol's document
	}
	schema, ok := descend(raw, node).(map[string]any)
	if !ok {
		return []string{"it is not described"}
	}
	within := func(name string, node any, of reflect.Type) (found []string) {
		for _, d := range differences(raw, node, of) {
			found = append(found, name+": "+d)
		}
		return found
	}
	want := "integer"
	var found []string
	if of == reflect.TypeFor[time.Time]() {
		of = reflect.TypeFor[string]()
	}
	switch of.Kind() {
	case reflect.Pointer:
		return differences(raw, node, of.Elem())
	case reflect.String:
		want = "string"
	case reflect.Bool:
		want = "boolean"
	case reflect.Float64:
		want = "number"
	case reflect.Map:
		want, found = "object", within("values", schema["additionalProperties"], of.Elem())
	case reflect.Slice:
		want = "string" // in base64
		if of.Elem().Kind() != reflect.Uint8 {
			want, found = "array", within("items", schema["items"], of.Elem())
		}
	case reflect.Struct:
		want = "object"
		properties, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		has := membersOf(of)
		for name, m := range has {
			found = append(found, within(name, properties[name], m.of)...)
			if slices.Contains(required, any(name)) != m.always {
				found = append(found, fmt.Sprintf("%s: it is always there: %t, which required does not say", name, m.always))
			}
		}
		for name := range properties {
			if _, ok := has[name]; !ok {
				found = append(found, name+": no document has it")
			}
		}
	}
	if types := schema["type"]; types != want && !reflect.DeepEqual(types, []any{want, "null"}) {
		found = append(found, fmt.Sprintf("type is %v, want %s", types, want))
	}
	return found
}

// member is a member of an object; always means that it is never left out.
type member struct {
	of     reflect.Type
	always bool
}

// membersOf returns the members of a struct's JSON, including those of embedded structs.
func membersOf(of reflect.Type) map[string]member {
	members := map[string]member{}
	for field := range of.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous {
			for name, m := range membersOf(field.Type) {
				m.always = m.always && field.Type != reflect.TypeFor[api.Life]() // a removed instance has none
				members[name] = m
			}
			continue
		}
		members[name] = member{field.Type, options == ""}
	}
	return members
}

func TestConfigReportsEveryMistakeAtOnce(t *testing.T) {
	_, err := New(Config{Reads: "fresh", BasePaths: []string{"eureka", "/eureka/"}, Limits: web.Limits{BatchBytes: -1, InstancesInApp: -2}})
	need.That(t, err != nil, "the configuration was accepted")
	for _, want := range []string{"Service", "reads.eureka", `"eureka"`, `"/eureka/"`, "limits.batch-bytes", "limits.instances-in-app"} {
		expect.That(t, strings.Contains(err.Error(), want), "the error does not name %s: %v", want, err)
	}
}

// upstreamTarget applies upstream's rule with upstream's pattern.
func upstreamTarget(method, path string) target {
	match := regexp.MustCompile(`^.*/apps(/[^/]*)?$`).FindStringSubmatch(path)
	switch {
	case method != http.MethodGet || match == nil:
		return notLimited
	case match[1] == "" || match[1] == "/":
		return fullFetch
	case match[1] == "/delta":
		return deltaFetch
	}
	return applicationFetch
}

func TestRateLimitTargetsAreThoseOfUpstreamsPattern(t *testing.T) {
	for _, row := range []struct {
		method, path string
		want         target
	}{
		{"GET", "/eureka/apps", fullFetch}, {"GET", "/eureka/apps/", fullFetch}, {"GET", "/eureka/v2//apps", fullFetch},
		{"GET", "/eureka/apps/delta", deltaFetch}, {"GET", "/eureka/apps/delta/", notLimited},
		{"GET", "/eureka/apps/ORDERS", applicationFetch}, {"GET", "/eureka/apps/DELTA", applicationFetch},
		{"GET", "/eureka/apps/ORDERS/", notLimited}, {"GET", "/eureka/apps/ORDERS/i1", notLimited}, {"GET", "/eureka/apps//", notLimited},
		{"GET", "/eureka/apps/APPS", applicationFetch}, {"GET", "/eureka/apps/apps", fullFetch}, {"GET", "/eureka/apps/apps/x", applicationFetch},
		{"GET", "/eureka/vips/orders", notLimited}, {"GET", "/eureka/svips/orders", notLimited}, {"GET", "/eureka/vips/apps", fullFetch},
		{"GET", "/eureka/instances/i1", notLimited}, {"GET", "/eureka/myapps", notLimited}, {"GET", "apps", notLimited}, {"GET", "", notLimited},
		{"HEAD", "/eureka/apps", notLimited}, {"PUT", "/eureka/apps/ORDERS", notLimited}, {"POST", "/eureka/apps/ORDERS", notLimited},
	} {
		got, pattern := targetOf(row.method, row.path), upstreamTarget(row.method, row.path)
		expect.That(t, got == row.want && pattern == row.want, "%s %s: got %d, the pattern says %d, want %d", row.method, row.path, got, pattern, row.want)
	}
	pieces := rapid.SampledFrom([]string{"/", "/apps", "apps", "/delta", "delta", "/ORDERS", "/eureka", "/v2", "/vips", "x", "%2F", "%61pps", ";a=b", "/apps/"})
	rapid.Check(t, func(rt *rapid.T) {
		path := strings.Join(rapid.SliceOfN(pieces, 0, 8).Draw(rt, "path"), "")
		method := rapid.SampledFrom([]string{"GET", "GET", "GET", "HEAD", "PUT", "POST", "DELETE"}).Draw(rt, "method")
		got, want := targetOf(method, path), upstreamTarget(method, path)
		need.That(rt, got == want, "%s %s: got %d, the pattern says %d", method, path, got, want)
	})
}

// done is a service that renews everything at once.
type done struct{ *fsmtest.Memory }

var doneResults = []registry.Result{{Outcome: registry.Done}}

// Apply implements registry.Service.
func (*done) Apply(context.Context, registry.Origin, ...registry.Op) ([]registry.Result, error) {
	return doneResults, nil
}

// heartbeat is what a Java client sends.
const heartbeat = "PUT /eureka/v2/apps/ORDERS/host-1.example.internal:orders:8080?status=UP&lastDirtyTimestamp=1767225599500 HTTP/1.1\r\n" +
	"DiscoveryIdentity-Name: DefaultClient\r\nDiscoveryIdentity-Version: 1.4\r\nDiscoveryIdentity-Id: 10.0.0.1\r\nAccept-Encoding: gzip\r\n" +
	"Content-Length: 0\r\nHost: 127.0.0.1:8761\r\nConnection: Keep-Alive\r\nUser-Agent: Java-EurekaClient/v1.10.17\r\n\r\n"

func newBenched(b testing.TB, access web.AccessConfig) *Handler {
	b.Helper()
	return need.Got(New(Config{Service: &done{fsmtest.New()}, Access: access}))(b)
}

// holding returns access control that asks for a token, and a heartbeat with that token.
func holding(t testing.TB) (c web.AccessConfig, withToken string) {
	t.Helper()
	text := access.NewText([access.RandomBytes]byte{1}, "", "")
	accessor, hash, err := access.Parse(text, "")
	need.OK(t, err)
	rule := need.Got(access.ParseRule("app {app} register"))(t)
	table, refusal := new(access.Table).Apply(&access.Change{
		Sure: true, Mode: access.On, PutRoles: []*access.Role{{Name: "service", Rules: []access.Rule{rule}}},
		Create: []*access.Token{{Accessor: accessor, Name: "orders", App: "ORDERS", Roles: []string{"service"}, Secrets: []access.Secret{{Hash: hash}}}},
	}, 1, 1)
	if refusal != "" {
		t.Fatal(refusal)
	}
	user := base64.StdEncoding.EncodeToString([]byte("orders:" + text))
	return web.AccessConfig{Table: func() *access.Table { return table }}, strings.Replace(heartbeat, "Host:", "Authorization: Basic "+user+"\r\nHost:", 1)
}

// endless is a connection that delivers the same heartbeat again and again.
type endless struct {
	net.Conn
	heartbeat string
}

func (e endless) Read(p []byte) (int, error)      { return copy(p, e.heartbeat), nil }
func (e endless) Write(p []byte) (int, error)     { return len(p), nil }
func (e endless) SetDeadline(time.Time) error     { return nil }
func (e endless) LocalAddr() net.Addr             { return nil }
func (e endless) SetReadDeadline(time.Time) error { return nil }

// A heartbeat with a known credential compares bytes and tables, and allocates as much as one without a credential.
func TestHeartbeatWithAKnownCredentialAllocatesNoMore(t *testing.T) {
	perHeartbeat := func(c web.AccessConfig, heartbeat string) float64 {
		r := httptest.NewRequest(http.MethodPut, "/", nil)
		r.Host = "127.0.0.1:8761"
		conn := endless{heartbeat: heartbeat}
		beats := newBeatConn(newBenched(t, c), new(heartbeats), conn, bufio.NewReader(conn), r)
		return testing.AllocsPerRun(1000, func() {
			need.That(t, beats.wait() && beats.heartbeat() && beats.write() && beats.w.status <= http.StatusOK, "%q was answered %d", heartbeat, beats.w.status)
		})
	}
	asks, with := holding(t)
	plain := perHeartbeat(web.AccessConfig{}, heartbeat)
	for name, got := range map[string]float64{
		"asked for a token":     perHeartbeat(asks, with),
		"not asked for a token": perHeartbeat(web.AccessConfig{}, with),
	} {
		expect.That(t, got == plain, "%s: %v allocations, want those of a heartbeat without one, %v", name, got, plain)
	}
}
