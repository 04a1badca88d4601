package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	own "github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// noticed is how long a node may take until it knows what was changed about tokens: ten times what is promised.
const noticed = 10 * time.Second

// denied says that a response refuses the caller, and not what is called. Of those whose credentials fail all the time, most are
// refused unread.
func (r Response) denied() bool {
	return r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden || r.Status == http.StatusTooManyRequests
}

// foretold is a call that a principal makes all the time, under labels that no other call of the test has.
type foretold struct {
	who, resource, verb string // labels of rollcall_auth_would_deny_total
	denied              bool   // in mode on
	token               string
	call                func(n *Node) Response

	made, refused atomic.Int64 // in mode log-only; in mode on
}

func (f *foretold) String() string { return f.who + " " + f.resource + ":" + f.verb }

// TestLogOnlyForetellsWhatModeOnRefuses: under the calls of several principals, log-only lets everything pass and counts what
// lacks permission. Mode on then refuses all that was counted, and nothing else.
func TestLogOnlyForetellsWhatModeOnRefuses(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{Auth: "log-only"}))
	c.PutRole(t, "service", "app {app} read,register", "app * read")
	c.PutRole(t, "reader", "app * read")
	c.PutRole(t, "keys", "kv config/ read,write")
	token := func(name, app string, role string) string { return c.NewToken(t, name, app, role).Secret }
	beat := func(id string) func(n *Node) Response {
		return func(n *Node) Response { return n.Renew("ORDERS", id) }
	}
	get := func(path string) func(n *Node) Response { return func(n *Node) Response { return n.Get(path) } }
	mustRegister(t, c.Nodes[0], Instance{App: "ORDERS", ID: "orders-1", Duration: 600})
	orders, reader, keys := token("orders", "ORDERS", "service"), token("reader", "", "reader"), token("keys", "", "keys")
	calls := []*foretold{
		{who: "orders", resource: "app", verb: "register", token: orders, call: beat("orders-1")},
		{who: "orders", resource: "app", verb: "read", token: orders, call: get("/eureka/apps")},
		{who: "orders", resource: "operator", verb: "read", token: orders, denied: true, call: get("/v1/rollcall/status")},
		{who: "cart", resource: "app", verb: "register", token: token("cart", "CART", "service"), denied: true,
			call: func(n *Node) Response { return n.Register(Instance{App: "PAY", ID: "pay-1", Duration: 600}) }},
		{who: "reader", resource: "app", verb: "read", token: reader, call: get("/v1/catalog/services")},
		{who: "reader", resource: "app", verb: "register", token: reader, denied: true, call: beat("orders-1")},
		{who: "keys", resource: "kv", verb: "write", token: keys,
			call: func(n *Node) Response {
				return n.Do(Request{Method: http.MethodPut, Path: "/v1/kv/config/x", Body: []byte("1")})
			}},
		{who: "keys", resource: "session", verb: "read", token: keys, denied: true, call: get("/v1/session/list")},
		{who: "nobody", resource: "app", verb: "read", denied: true, call: get("/eureka/apps/delta")},
	}
	var on atomic.Bool // every node says so
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	defer func() {
		cancel()
		callers.Wait()
	}()
	var mu sync.Mutex // held while no call of mode log-only is under way, by its switch
	for _, f := range calls {
		for _, n := range c.Nodes {
			as := n.As(f.token)
			callers.Go(func() {
				for pause(ctx, 50*time.Millisecond) {
					begun := on.Load()
					response := f.call(as)
					switch {
					case response.Outcome() == Refused || response.Status == http.StatusGatewayTimeout: // a busy machine's
					case !f.denied && response.denied(), begun && f.denied && !response.denied(), !response.denied() && response.Status/100 != 2:
						mu.Lock()
						t.Errorf("%v at %s, all in mode on %v: %v", f, n.Name, begun, response)
						mu.Unlock()
					case begun && response.denied():
						f.refused.Add(1)
					case !begun:
						f.made.Add(1)
					}
				}
			})
		}
	}
	await := func(what string, count func(f *foretold) bool) {
		t.Helper()
		Eventually(t, ReadyLimit, what, func() error {
			for _, f := range calls {
				if !count(f) {
					return fmt.Errorf("%v: %d in mode log-only, %d refused", f, f.made.Load(), f.refused.Load())
				}
			}
			return nil
		})
	}
	await("every call was made", func(f *foretold) bool { return f.made.Load() >= 30 })
	counted := wouldDeny(t, c)
	for _, f := range calls {
		expect.That(t, counted[f.String()] > 0 == f.denied, "counted %d of %v, and mode on is to refuse it: %v", counted[f.String()], f, f.denied)
	}
	need.OK(t, c.Nodes[1].Do(Request{Method: http.MethodPut, Path: authPath + "mode?mode=on"}).is(http.StatusOK))
	for _, n := range c.Nodes {
		Eventually(t, noticed, n.Name+" is in mode on", func() error {
			status, err := ask[own.AuthStatus](n, strings.TrimSuffix(authPath, "/"))
			return errors.Join(err, unless(status.Mode == "on" && status.NodeMode == "log-only", "%+v", status))
		})
	}
	on.Store(true)
	await("what was counted is refused", func(f *foretold) bool { return !f.denied || f.refused.Load() >= 30 })
	cancel()
	callers.Wait()
	for who, n := range wouldDeny(t, c) {
		t.Logf("would deny: %d %s", n, who)
	}
	_, there := mustList(t, c.Nodes[0])["pay-1"]
	expect.That(t, there, "what was registered in mode log-only is lost")
}

// wouldDeny is what the nodes have counted in mode log-only: calls by principal, resource and verb.
func wouldDeny(t *testing.T, c *Cluster) map[string]int {
	t.Helper()
	counted := make(map[string]int)
	sample := regexp.MustCompile(`(?m)^rollcall_auth_would_deny_total\{principal="(.*)",resource="(.*)",verb="(.*)"\} (\d+)$`)
	for _, n := range c.Nodes {
		page := n.Do(Request{Path: "/metrics", Accept: "*/*"})
		need.OK(t, page.is(http.StatusOK))
		for _, m := range sample.FindAllStringSubmatch(string(page.Body), -1) {
			count := need.Got(strconv.Atoi(m[4]))(t)
			counted[m[1]+" "+m[2]+":"+m[3]] += count
		}
	}
	return counted
}

// TestFirstOperatorAndALostTokenNeedButTheSocket does by hand what the documentation says: bootstrap over the socket, once, and
// after the loss of the last operator's token another one from any node's socket; then the lost one is revoked.
func TestFirstOperatorAndALostTokenNeedButTheSocket(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, withSteadyLeader(Config{Auth: "on"}))
	for _, n := range c.Nodes {
		n.Start(t)
	}
	for _, n := range c.Nodes { // nobody is anything before
		Eventually(t, ReadyLimit, n.Name+" listens", func() error { return n.Get("/readyz").is(http.StatusOK) })
		for _, path := range []string{"/eureka/apps", "/v1/kv/a", "/metrics", authPath + "tokens"} {
			response := n.Get(path)
			expect.That(t, response.denied(), "%s before the bootstrap: %v", path, response)
		}
		response := n.Do(Request{Method: http.MethodPost, Path: authPath + "bootstrap"})
		expect.OKf(t, response.is(http.StatusUnauthorized), "bootstrap over the network")
	}
	post := func(n *Node, path, body string) Response {
		return untilLed(func() Response {
			return n.Admin(Request{Method: http.MethodPost, Path: authPath + path, Body: []byte(body)})
		})
	}
	lost := need.Got(decoded[own.NewToken](c.Nodes[1], "bootstrap", post(c.Nodes[1], "bootstrap", `{"name":"ann"}`)))(t)
	c.beOperator(lost)
	c.WaitReady()
	c.t.Cleanup(c.lookAtProcesses)
	expect.OKf(t, post(c.Nodes[2], "bootstrap", "").is(http.StatusConflict), "a second bootstrap, at another node's socket")
	remove := func(accessor string) Response {
		return untilLed(func() Response {
			return c.Nodes[0].Do(Request{Method: http.MethodDelete, Path: authPath + "tokens/" + accessor})
		})
	}
	expect.OKf(t, remove(lost.Accessor).is(http.StatusConflict), "the last operator's own removal")
	for _, n := range c.Nodes {
		n.Token = "" // is lost
	}
	found := need.Got(decoded[own.NewToken](c.Nodes[2], "tokens", post(c.Nodes[2], "tokens", `{"name":"bob","roles":["operator"]}`)))(t)
	c.beOperator(found)
	c.WaitReady()
	need.OKf(t, remove(lost.Accessor).is(http.StatusOK), "the lost token's removal")
	restarted := c.Others(c.Leader())[0]
	restarted.Stop(t)
	restarted.Start(t)
	restarted.WaitReady(t)
	for _, n := range c.Nodes {
		Eventually(t, noticed, n.Name+" refuses the lost token", func() error { return n.As(lost.Secret).Get("/eureka/apps").is(http.StatusUnauthorized) })
		status := need.Got(ask[own.AuthStatus](n, strings.TrimSuffix(authPath, "/")))(t)
		expect.That(t, status.Mode == "on" && status.Bootstrapped && status.Tokens == 1 && status.Caller.Name == "bob", "%s says %+v", n.Name, status)
		over := n.Admin(Request{Path: authPath + "tokens"})
		expect.That(t, over.Status == http.StatusOK && bytes.Contains(over.Body, []byte(found.Accessor)), "%s's socket: %v", n.Name, over)
	}
}

// TestSecretsThatShowAreFound plants secrets where programs leave them: the search for them must find each.
func TestSecretsThatShowAreFound(t *testing.T) {
	t.Parallel()
	const secret = "abcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrst"
	const token, password = "rct_aaaabbbbccccdddd_" + secret + "_2222222", "canary-of-a-peer"
	var zipped, packed bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprint(z, "url=http://orders:"+token+"@n1/eureka")
	need.OK(t, z.Close())
	packed.WriteString("header")
	p := need.Got(zstd.NewWriter(&packed))(t)
	fmt.Fprint(p, strings.Repeat("key", 1000)+password)
	need.OK(t, p.Close())
	for where, text := range map[string]string{
		"a log":             `level=WARN msg="no such token" token=` + token,
		"the secret alone":  secret,
		"a Basic field":     "Basic " + base64.StdEncoding.EncodeToString([]byte("orders:"+token)),
		"another one":       "Basic " + base64.StdEncoding.EncodeToString([]byte("pay:"+token)),
		"a third one":       "Basic " + base64.StdEncoding.EncodeToString([]byte("a:"+password)),
		"a command line":    "server\x00--replication-eureka=old=http://us:" + password + "@host/eureka\x00",
		"an escaped URL":    url.QueryEscape("http://us:" + password + "@host/eureka"),
		"a debug bundle":    zipped.String(),
		"a packed snapshot": packed.String(),
	} {
		var s secrets
		s.add(token)
		s.add(password)
		s.lookPacked(where, []byte(text))
		expect.That(t, len(s.leaks) > 0, "%s: the secret in it is not found", where)
	}
	var s secrets
	s.add(token)
	s.lookPacked("what may be known", []byte(strings.Replace(token, secret, "…", 1)))
	expect.That(t, len(s.leaks) == 0, "%v", s.leaks)
}
