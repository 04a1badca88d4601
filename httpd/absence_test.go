package httpd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// placeRow matches a row of docs/reference/reads.md's table of places that read what a node has.
var placeRow = regexp.MustCompile("(?m)^\\| `([a-z/]+\\.go)` `(\\w+)` \\|")

// TestEveryPlaceThatReadsWhatANodeHasIsInTheTable finds new places: each must state what happens when the state lacks
// something.
func TestEveryPlaceThatReadsWhatANodeHasIsInTheTable(t *testing.T) {
	listed := map[string]bool{}
	for _, m := range placeRow.FindAllStringSubmatch(string(need.Got(os.ReadFile("../docs/reference/reads.md"))(t)), -1) {
		listed[m[1]+" "+m[2]] = true
	}
	found := map[string]bool{}
	for _, root := range []string{".", "../cmd/internal/node/quota.go", "../cmd/internal/node/limit.go"} {
		need.OK(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				readersIn(t, path, found)
			}
			return err
		}))
	}
	for place := range found {
		expect.That(t, listed[place], "docs/reference/reads.md lacks the place %s", place)
	}
	for place := range listed {
		expect.That(t, found[place], "docs/reference/reads.md has the place %s, which reads no stale view", place)
	}
}

// readersIn adds the functions of a file that read a stale view.
func readersIn(t *testing.T, path string, found map[string]bool) {
	t.Helper()
	file := need.Got(parser.ParseFile(token.NewFileSet(), path, nil, 0))(t)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name == "StaleView" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if readsStale(n) {
				found[filepath.Join("httpd", path)+" "+f.Name.Name] = true
			}
			return true
		})
	}
}

// readsStale reports whether a node of a function's syntax tree is the word Stale of another package, or a call of
// StaleView.
func readsStale(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		return n.Sel.Name == "Stale" || n.Sel.Name == "StaleView"
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.Ident)
		return ok && f.Name == "StaleView"
	}
	return false
}

// absent is a request for something that a lagging node does not have.
type absent struct {
	name, method, target string
	status               int // of the response when the newest state has it
}

var absents = []absent{
	{"role", "GET", "/v1/rollcall/auth/roles/late", 200},
	{"role that goes", "DELETE", "/v1/rollcall/auth/roles/late", 200},
	{"lock of a session", "PUT", "/v1/rollcall/locks/l?session={session}&wait=10ms", 200},
	{"lock of a session, at once", "PUT", "/v1/rollcall/locks/l?session={session}", 200},
	{"semaphore of a session", "PUT", "/v1/rollcall/semaphores/s?limit=1&session={session}&wait=10ms", 200},
}

// TestWhatALaggingNodeLacksIsNotDenied asks a node whose state is older than the requested item, with a leader and
// without.
func TestWhatALaggingNodeLacksIsNotDenied(t *testing.T) {
	for _, row := range absents {
		for _, leader := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, leader %t", row.name, leader), func(t *testing.T) {
				httpdtest.Bubble(t, func(t *testing.T) { row.ask(t, leader) })
			})
		}
	}
}

func (row absent) ask(t *testing.T, leader bool) {
	t.Helper()
	m := fsmtest.New()
	c := &httpdtest.Coordinated{Memory: m, Kv: fsmtest.NewCoordination(m)}
	tables := []*access.Table{c.Kv.AccessTable()}
	c.Handler = need.Got(httpd.New(httpd.Config{Service: catchingUp{m, func() {
		m.Set(func(*fsmtest.Memory) { c.Kv.Behind = nil })
		tables[0] = c.Kv.AccessTable()
	}}, Coordination: c.Kv, Agents: consul.OneAgent,
		Access: web.AccessConfig{Table: func() *access.Table { return tables[0] }}}))(t)
	old := need.Got(c.Kv.View(t.Context(), registry.Stale))(t)
	holder, waiter := c.OwnSession(t, ""), c.OwnSession(t, "")
	for _, held := range []string{"/v1/rollcall/locks/l?session=", "/v1/rollcall/semaphores/s?limit=1&session="} {
		need.Equal(t, c.Send("PUT", held+holder, "").Status, 200, "the holder")
	}
	role := &access.Role{Name: "late", Rules: access.Everything()}
	need.Equal(t, c.Kv.Perform(kv.Access{Change: access.Change{PutRoles: []*access.Role{role}}}).Refusal, "", "the role")
	m.Set(func(m *fsmtest.Memory) { c.Kv.Behind = old })
	if !leader {
		m.Set(func(m *fsmtest.Memory) { m.ViewErr, c.Kv.ViewErr = registry.ErrNoLeader, registry.ErrNoLeader })
	}
	r := c.SendUntil(web.AsAdministrator(context.Background()), row.method, strings.ReplaceAll(row.target, "{session}", waiter), "")
	expect.That(t, r.Status != http.StatusNotFound, "it is denied: %d %s", r.Status, r.Body)
	expect.That(t, !leader || r.Status == row.status, "got %d %s, want %d", r.Status, r.Body, row.status)
}

// catchingUp is the registry of a node that catches up when asked for a linearizable view.
type catchingUp struct {
	*fsmtest.Memory
	catchUp func()
}

// View implements registry.Service.
func (l catchingUp) View(ctx context.Context, read registry.Consistency) (*registry.View, error) {
	v, err := l.Memory.View(ctx, read)
	if err == nil && read == registry.Linearizable {
		l.catchUp()
	}
	return v, err
}

// TestQuotaIsNoRefusalOfWhatIsThere registers an instance again at a node that does not know it yet and is full.
func TestQuotaIsNoRefusalOfWhatIsThere(t *testing.T) {
	m := fsmtest.New()
	behind := &behindService{Memory: m}
	h := need.Got(httpd.New(httpd.Config{Service: behind, Limits: web.Limits{InstancesTotal: 1}}))(t)
	m.Perform(t, registry.Register{Instance: httpdtest.NewInstance("OTHER", "i0")})
	behind.old = m.Newest()
	m.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	c := &httpdtest.Coordinated{Memory: m, Handler: h}
	register := func() httpdtest.Reply {
		return c.Send("POST", "/eureka/apps/ORDERS", `{"instance":{"instanceId":"i1","app":"ORDERS","hostName":"h","ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"@class":"x","name":"MyOwn"}}}`,
			"Content-Type: application/json")
	}
	expect.Equal(t, register().Status, http.StatusNoContent, "again, behind: %s", register().Body)
	m.Set(func(m *fsmtest.Memory) { m.ViewErr = registry.ErrNoLeader })
	expect.Equal(t, register().Status, http.StatusServiceUnavailable, "again, behind and without a leader")
	m.Set(func(m *fsmtest.Memory) { m.ViewErr = nil })
	m.Perform(t, registry.Cancel{Key: registry.NewKey("ORDERS", "i1")})
	expect.Equal(t, register().Status, http.StatusInsufficientStorage, "one that is new")
}

// behindService returns an old state in stale views.
type behindService struct {
	*fsmtest.Memory
	old *registry.View
}

// View implements registry.Service.
func (b *behindService) View(ctx context.Context, read registry.Consistency) (*registry.View, error) {
	if read == registry.Stale && b.old != nil {
		return b.old, nil
	}
	return b.Memory.View(ctx, read)
}

// withField returns the registration with another field in the instance.
func withField(field string) string {
	return strings.Replace(httpdtest.InstanceJSON, `"status":"UP"`, `"status":"UP",`+field, 1)
}

func manyPairs(n int) string {
	var pairs []string
	for i := range n {
		pairs = append(pairs, fmt.Sprintf(`"k%d":"v"`, i))
	}
	return `"metadata":{` + strings.Join(pairs, ",") + `}`
}

// badRequests are inputs that must have no effect. Malformed Eureka documents are tested in httpd/eureka.
var badRequests = []struct {
	name    string
	request string
	status  int
}{
	{"a header block beyond the limit", httpdtest.Register(httpdtest.InstanceJSON, "X-Large: "+strings.Repeat("a", 20<<10)), 431},
	{"five thousand headers", httpdtest.Register(httpdtest.InstanceJSON, slices.Repeat([]string{"A: b"}, 5000)...), 431},
	{"a URI beyond the header limit", httpdtest.Request("POST", "/eureka/apps/ORDERS?"+strings.Repeat("a", 30<<10), httpdtest.InstanceJSON), 431},
	{"a URI beyond 2 KiB", httpdtest.Request("POST", "/eureka/apps/ORDERS?a="+strings.Repeat("a", 2<<10), httpdtest.InstanceJSON), 414},
	{"two different lengths", httpdtest.Register(httpdtest.InstanceJSON, "Content-Length: 5"), 400},
	{"a signed length", "POST /eureka/apps/ORDERS HTTP/1.1\r\nHost: node\r\nContent-Length: +5\r\n\r\n{}   ", 400},
	{"a negative length", "POST /eureka/apps/ORDERS HTTP/1.1\r\nHost: node\r\nContent-Length: -5\r\n\r\n", 400},
	{"a length of 20 digits", "POST /eureka/apps/ORDERS HTTP/1.1\r\nHost: node\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
	{"an unknown transfer coding", "POST /eureka/apps/ORDERS HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: xchunked\r\n\r\n", 501},
	{"a space before the colon", "POST /eureka/apps/ORDERS HTTP/1.1\r\nHost: node\r\nAccept : a\r\n\r\n", 400},
	{"a chunk size that is no number", "POST /eureka/apps/ORDERS HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + httpdtest.InstanceJSON + "\r\n0\r\n\r\n", 400},
	{"a bad chunk after a whole document", "POST /eureka/apps/ORDERS HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\nzz\r\n", len(httpdtest.InstanceJSON), httpdtest.InstanceJSON), 400},
	{"a chunk extension of 8 KiB", "POST /eureka/apps/ORDERS HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x;%s\r\n%s\r\n0\r\n\r\n", len(httpdtest.InstanceJSON), strings.Repeat("e", 8<<10), httpdtest.InstanceJSON), 400},
	{"no host", "POST /eureka/apps/ORDERS HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 400},
	{"two hosts", "POST /eureka/apps/ORDERS HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n", 400},
	{"HTTP/3.0", "POST /eureka/apps/ORDERS HTTP/3.0\r\nHost: node\r\n\r\n", 505},
	{"CONNECT", "CONNECT node:443 HTTP/1.1\r\nHost: node:443\r\n\r\n", 405},
	{"TRACE", httpdtest.Request("TRACE", "/eureka/apps", ""), 405},
	{"an unknown method", httpdtest.Request("EXPLODE", "/eureka/apps/ORDERS/i1", ""), 405},
	{"a zero byte in the application", httpdtest.Request("POST", "/eureka/apps/ORD%00ERS", httpdtest.InstanceJSON), 400},
	{"a line break in an id", httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1%0d%0aX:y", ""), 400},
	{"invalid UTF-8 in an id", httpdtest.Request("PUT", "/eureka/apps/ORDERS/%ff%fe", ""), 400},
	{"a broken escape in an id", httpdtest.Request("PUT", "/eureka/apps/ORDERS/%zz", ""), 400},
	{"escaped dots as application", httpdtest.Request("POST", "/eureka/apps/%2e%2e", httpdtest.InstanceJSON), 400},
	{"a dot as id", httpdtest.Request("PUT", "/eureka/apps/ORDERS/.", ""), 400},
	{"dots as a segment", httpdtest.Request("POST", "/eureka/v2/../apps/ORDERS", httpdtest.InstanceJSON), 400},
	{"a name of 256 bytes", httpdtest.Request("PUT", "/eureka/apps/ORDERS/"+strings.Repeat("i", 256), ""), 400},
	{"a body beyond the limit", httpdtest.Register(withField(`"x":"` + strings.Repeat("a", 256<<10) + `"`)), 413},
	{"a chunked body beyond the limit", "POST /eureka/apps/ORDERS HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", 300<<10, strings.Repeat(" ", 300<<10)), 413},
	{"a body where none belongs, beyond the limit", httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", strings.Repeat("a", 65<<10)), 413},
	{"a compressed body that is larger inside", httpdtest.Register(httpdtest.Gzipped(withField(`"x":"`+strings.Repeat("abcdefgh", 40<<10)+`"`)), "Content-Encoding: gzip"), 413},
	{"a compressed body of zeros", httpdtest.Register(httpdtest.Gzipped(strings.Repeat(" ", 250<<10)+httpdtest.InstanceJSON), "Content-Encoding: gzip"), 413},
	{"a body that is not gzip", httpdtest.Register(httpdtest.InstanceJSON, "Content-Encoding: gzip"), 400},
	{"a gzip body that is cut off", httpdtest.Register(httpdtest.Gzipped(httpdtest.InstanceJSON)[:100], "Content-Encoding: gzip"), 400},
	{"another coding", httpdtest.Register(httpdtest.InstanceJSON, "Content-Encoding: br"), 415},
	{"another type", httpdtest.Register(httpdtest.InstanceJSON, "Content-Type: application/octet-stream"), 415},
	{"an external entity", httpdtest.Register(`<!DOCTYPE i [<!ENTITY x SYSTEM "file:///etc/hostname">]>` + strings.Replace(httpdtest.InstanceXML, "<hostName>h", "<hostName>&x;", 1)), 400},
	{"a key twice", httpdtest.Register(withField(`"app":"ORDERS"`)), 400},
	{"a VIP address of 65 parts", httpdtest.Register(withField(`"secureVipAddress":"` + strings.Repeat("a,", 64) + `a"`)), 400},
	{"257 metadata entries", httpdtest.Register(withField(manyPairs(257))), 400},
	{"65 KiB of metadata", httpdtest.Register(withField(`"metadata":{"k":"` + strings.Repeat("v", 65<<10) + `"}`)), 400},
	{"another application in the body", httpdtest.Request("POST", "/eureka/apps/OTHER", httpdtest.InstanceJSON), 400},
	{"a timestamp that is no number", httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1?lastDirtyTimestamp=now", ""), 400},
	{"33 parameters", httpdtest.Request("POST", "/eureka/apps/ORDERS?"+strings.Repeat("a=b&", 32)+"a=b", httpdtest.InstanceJSON), 400},
	{"33 parameters on a heartbeat", httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1?"+strings.Repeat("a=b&", 32)+"a=b", ""), 400},
	{"257 metadata parameters", httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1/metadata?"+strings.Repeat("a=b&", 256)+"a=b", ""), 400},
	{"an unknown consistency", httpdtest.Request("GET", "/eureka/apps?consistency=eventual", ""), 400},
}

func TestRequestThatIsMalformedIsRefusedWithoutEffect(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := httpdtest.NewNode(t, httpd.Config{Metrics: metrics}, nil)
	for _, row := range badRequests {
		t.Run(row.name, func(t *testing.T) {
			got := n.Send(t, row.request).Says(t, row.status, "", "it")
			expect.That(t, row.status != 405 || got.Header.Get("Allow") != "", "405 without Allow")
			expect.That(t, row.status != 413 || got.Closed, "413 leaves the connection open")
			need.That(t, n.Count() <= 0, "the request had an effect")
		})
	}
	expect.Equal(t, httpdtest.Gathered(t, metrics, "rollcall_http_panics_total", nil), 0, "handlers that panicked:")
}

// oddRequests look strange but must be accepted: each registers ORDERS/i1.
var oddRequests = []struct {
	name    string
	request string
}{
	{"length and chunks together", "POST /eureka/apps/ORDERS HTTP/1.1\r\nHost: node\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(httpdtest.InstanceJSON), httpdtest.InstanceJSON)},
	{"lines ended by a line feed alone", strings.Replace(httpdtest.Register(httpdtest.InstanceJSON), "\r\n", "\n", -1)},
	{"a folded header", httpdtest.Register(httpdtest.InstanceJSON, "Accept: application/json,", " text/html")},
	{"another host in the target", httpdtest.Request("POST", "http://elsewhere.example/eureka/apps/ORDERS", httpdtest.InstanceJSON)},
	{"double slashes", httpdtest.Request("POST", "//eureka//apps//ORDERS//", httpdtest.InstanceJSON)},
	{"no type", httpdtest.Register(httpdtest.InstanceJSON)},
	{"no type, XML", httpdtest.Register(httpdtest.InstanceXML)},
	{"the type of a form", httpdtest.Register(httpdtest.InstanceJSON, "Content-Type: application/x-www-form-urlencoded")},
	{"a structured JSON type", httpdtest.Register(httpdtest.InstanceJSON, "Content-Type: application/vnd.x+json; charset=utf-8")},
	{"a compressed body", httpdtest.Register(httpdtest.Gzipped(httpdtest.InstanceJSON), "Content-Encoding: gzip", "Content-Type: application/json")},
	{"32 parameters", httpdtest.Request("POST", "/eureka/apps/ORDERS?"+strings.Repeat("a=b&", 31)+"a=b", httpdtest.InstanceJSON)},
	{"an unknown field", httpdtest.Register(withField(`"x":{"y":[1,2,{"z":null}]}`))},
	{"256 metadata entries", httpdtest.Register(withField(manyPairs(256)))},
	{"a lease of 30 years", httpdtest.Register(withField(`"leaseInfo":{"durationInSecs":999999999}`))},
	{"a timestamp in the far future", httpdtest.Register(withField(`"lastDirtyTimestamp":"9000000000000000000"`))},
	{"a key in another case is another key", httpdtest.Register(withField(`"APP":"PAY"`))},
}

func TestRequestThatIsOddIsAccepted(t *testing.T) {
	for _, row := range oddRequests {
		t.Run(row.name, func(t *testing.T) {
			n := httpdtest.NewNode(t, httpd.Config{}, nil)
			got := n.Send(t, row.request)
			need.That(t, got.Status == http.StatusNoContent, "got %d %q, want 204", got.Status, got.Body)
			_, registered := n.Newest().Lease(registry.NewKey("ORDERS", "i1"))
			expect.That(t, registered, "the instance is not registered")
		})
	}
}

func TestRequestByHTTP2OnClearTextIsRefused(t *testing.T) {
	expect.Equal(t, httpdtest.NewNode(t, httpd.Config{}, nil).Send(t, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").Status, http.StatusBadRequest, "got")
}

func TestRequestWithASlowHeaderIsCutOff(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		conn := httpdtest.NewBubbled(t, httpd.Config{}).Open(t)
		need.Got(io.WriteString(conn, "GET /eureka/apps HTTP/1.1\r\nHo"))(t)
		answer, err := io.ReadAll(conn)
		need.OKf(t, err, "the connection was not closed")
		expect.That(t, len(answer) == 0 || strings.HasPrefix(string(answer), "HTTP/1.1 400 "), "got %q, want 400 or nothing", answer)
	})
}

func TestRequestWithASlowBodyIsCutOffWithoutEffect(t *testing.T) {
	httpdtest.WithNode(t, func(t *testing.T, n *httpdtest.Bubbled) {
		for _, target := range []string{"POST /eureka/apps/ORDERS", "PUT /eureka/apps/ORDERS/i1", "POST /eureka/peerreplication/batch/"} {
			conn := n.Open(t)
			need.Got(io.WriteString(conn, target+" HTTP/1.1\r\nHost: node\r\nContent-Length: 1000\r\n\r\n{"))(t)
			expect.Equal(t, httpdtest.ReadReply(t, conn, target).Status, http.StatusBadRequest, "%s: got", target)
			rest, err := io.ReadAll(conn)
			expect.That(t, err == nil && len(rest) == 0, "%s: got %q, %v, want the connection closed", target, rest, err)
		}
		expect.That(t, n.Count() <= 0, "a request had an effect")
	})
}

func TestRequestThatBreaksInItsBodyHasNoEffect(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	conn := n.Dial(t)
	need.Got(io.WriteString(conn, "POST /eureka/apps/ORDERS HTTP/1.1\r\nHost: node\r\nContent-Length: "+httpdtest.Decimal(len(httpdtest.InstanceJSON)+1)+"\r\n\r\n"+httpdtest.InstanceJSON))(t)
	need.OK(t, conn.(interface{ CloseWrite() error }).CloseWrite())
	expect.Equal(t, httpdtest.ReadReply(t, conn, "POST").Status, http.StatusBadRequest, "got")
	expect.That(t, n.Count() <= 0, "the request had an effect")
}

func TestServerHasTheBoundsOfTheThreatModel(t *testing.T) {
	s := httpd.NewServer("127.0.0.1:0", http.NotFoundHandler(), nil)
	expect.That(t, s.ReadHeaderTimeout == 5*time.Second && s.ReadTimeout == 15*time.Second && s.WriteTimeout == 30*time.Second && s.IdleTimeout == 90*time.Second,
		"timeouts are %v, %v, %v, %v", s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout)
	expect.That(t, s.HTTP2.MaxConcurrentStreams == 100, "a connection may have %d streams, want 100", s.HTTP2.MaxConcurrentStreams)
}

func TestQuotaRefusesNewInstancesAndLetsOthersGoOn(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Limits: web.Limits{InstancesInApp: 2, InstancesTotal: 3}}, nil)
	for _, key := range []registry.Key{{App: "A", ID: "1"}, {App: "A", ID: "2"}} {
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance(key.App, key.ID)})
	}
	post := func(app, id string) int {
		body := strings.NewReplacer("ORDERS", app, "i1", id).Replace(httpdtest.InstanceJSON)
		return n.Send(t, httpdtest.Request("POST", "/eureka/apps/"+app, body)).Status
	}
	expect.Equal(t, post("A", "3"), http.StatusTooManyRequests, "a third instance of an application of two: got")
	expect.Equal(t, post("B", "1"), http.StatusNoContent, "another application: got")
	expect.Equal(t, post("C", "1"), http.StatusInsufficientStorage, "a fourth instance of three: got")
	expect.Equal(t, post("A", "2"), http.StatusNoContent, "re-registration: got")
	expect.Equal(t, n.Send(t, httpdtest.Request("PUT", "/eureka/apps/A/1", "")).Status, http.StatusOK, "heartbeat: got")
}

func TestPanicIs500WithoutTextAndCounted(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := httpdtest.NewNode(t, httpd.Config{Service: panicking{fsmtest.New()}, Metrics: metrics}, nil)
	for _, target := range []string{"PUT /eureka/apps/A/1", "DELETE /eureka/apps/A/1", "GET /eureka/apps"} {
		method, path, _ := strings.Cut(target, " ")
		n.Send(t, httpdtest.Request(method, path, "")).Is(t, http.StatusInternalServerError, "", "%s", target)
	}
	expect.Equal(t, httpdtest.Gathered(t, metrics, "rollcall_http_panics_total", nil), 3, "panics that are counted:")
}

// panicking is a service with defects.
type panicking struct{ *fsmtest.Memory }

// Apply implements registry.Service.
func (panicking) Apply(context.Context, registry.Origin, ...registry.Op) ([]registry.Result, error) {
	panic("a defect of Apply")
}

// View implements registry.Service. Metrics are still collected.
func (p panicking) View(ctx context.Context, read registry.Consistency) (*registry.View, error) {
	if read != registry.Stale {
		panic("a defect of View")
	}
	return p.Memory.View(ctx, read)
}

func TestRequestIDIsTheCallersIfItIsPrintable(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	for name, tc := range map[string]struct {
		given string
		kept  bool
	}{
		"none": {"", false}, "a word": {"order-17/a.b:c", true}, "with a space": {"a b", false}, "too long": {strings.Repeat("x", 129), false},
		"as long as can be": {strings.Repeat("x", 128), true}, "no ASCII": {"ä", false},
	} {
		for _, path := range []string{"/eureka/apps", "/v1/rollcall/status", "/v1/kv/a", "/healthz"} {
			got := n.Send(t, httpdtest.Request("GET", path, "", "X-Request-Id: "+tc.given)).Header.Get("X-Request-Id")
			expect.That(t, (got == tc.given) == tc.kept && got != "", "%s: GET %s: the response is called %q", name, path, got)
		}
	}
	got := n.Send(t, httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", "", "X-Request-Id: beat-1"))
	expect.Equal(t, got.Header.Get("X-Request-Id"), "beat-1", "a heartbeat is called")
}

func TestFailedAndSlowCallsAreLoggedOnce(t *testing.T) {
	var said bytes.Buffer
	m := fsmtest.New()
	n := httpdtest.NewNode(t, httpd.Config{Service: m, Coordination: fsmtest.NewCoordination(m), Log: slog.New(slog.NewTextHandler(&said, nil))}, nil)
	m.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	for _, row := range []struct {
		err           error
		level, status string
	}{{registry.ErrNoLeader, "level=WARN", "status=503"}, {errors.New("a defect"), "level=ERROR", "status=500"}} {
		m.Set(func(m *fsmtest.Memory) { m.ViewErr = row.err })
		for _, path := range []string{"/eureka/apps", "/v1/rollcall/apps"} {
			said.Reset()
			got := n.Send(t, httpdtest.Request("GET", path, "", "X-Request-Id: q-1"))
			expect.That(t, strings.HasPrefix(path, "/v1") == strings.Contains(got.Body, `"request":"q-1"`), "GET %s: %d %s", path, got.Status, got.Body)
			for _, want := range []string{row.level, "a call failed", "request=q-1", "method=GET", "path=" + path, "remote=", row.status, "took=", row.err.Error()} {
				expect.That(t, strings.Count(said.String(), "\n") == 1 && strings.Contains(said.String(), want), "GET %s: the log says %q, want one line with %q", path, &said, want)
			}
		}
	}
	m.Set(func(m *fsmtest.Memory) { m.ViewErr, m.ApplyErr = nil, registry.ErrNoLeader })
	said.Reset()
	n.Send(t, httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", ""))
	expect.That(t, strings.Count(said.String(), "a call failed") == 1 && strings.Contains(said.String(), "{base}/apps/{app}/{id}"), "a heartbeat that failed: the log says %q", &said)
	said.Reset()
	n.Send(t, httpdtest.Request("GET", "/eureka/apps/NOTHING", ""))
	expect.Equal(t, said.String(), "", "a call that found nothing is logged")
	expect.Equal(t, n.Send(t, httpdtest.Request("GET", "/v1/catalog/services?dc=elsewhere", "")).Status, 500, "Consul's status for a client's mistake: got")
	expect.Equal(t, said.String(), "", "a client's mistake is logged")
}

// lateService takes two seconds to return a view.
type lateService struct{ *fsmtest.Memory }

// View implements registry.Service.
func (s lateService) View(ctx context.Context, c registry.Consistency) (*registry.View, error) {
	if c != registry.Stale {
		time.Sleep(2 * time.Second)
	}
	return s.Memory.View(ctx, c)
}

func TestCallsAreSlowUnlessTheyWaitForAChange(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		var said bytes.Buffer
		h := need.Got(httpd.New(httpd.Config{Service: lateService{fsmtest.New()}, Log: slog.New(slog.NewTextHandler(&said, nil))}))(t)
		for path, want := range map[string]int{
			"/eureka/apps": 1, "/eureka/apps?consistency=stale": 0, "/v1/rollcall/watch?wait=30s&consistency=stale": 0,
		} {
			said.Reset()
			begun := time.Now()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			expect.That(t, w.Code == 200 && strings.Count(said.String(), "a call was slow") == want, "GET %s: %d after %v, and the log says %q, want %d lines of slow calls", path, w.Code, time.Since(begun), &said, want)
		}
	})
}
