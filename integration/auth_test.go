package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
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
