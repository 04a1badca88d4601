package httpdtest

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// NewBubbled starts a node in a bubble.
func NewBubbled(t *testing.T, config httpd.Config) *Bubbled {
	t.Helper()
	return NewBubbledTLS(t, config, nil)
}

// NewBubbledTLS is NewBubbled over TLS, for clients that the test makes.
func NewBubbledTLS(t *testing.T, config httpd.Config, secure *tls.Config) *Bubbled {
	t.Helper()
	n := &Bubbled{Memory: fsmtest.New(), Pipes: &Pipes{Dialed: make(chan net.Conn), Closed: make(chan struct{})}}
	switch s := config.Service.(type) {
	case nil:
		config.Service = n.Memory
	case *fsmtest.Memory:
		n.Memory = s
	}
	n.Handler = need.Got(httpd.New(config))(t)
	n.Server = httpd.NewServer("", n.Handler, nil)
	n.Server.TLSConfig = secure
	served := make(chan error, 1)
	go func() { served <- n.Handler.Serve(n.Server, n.Pipes) }()
	transport := &http.Transport{DialContext: n.Pipes.Dial, DisableCompression: true}
	n.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		n.Server.Close()
		n.Handler.Close()
		<-served
	})
	return n
}

// After runs f in the bubble after a time. The test does not end before f is done.
func After(t *testing.T, wait time.Duration, f func()) {
	done := make(chan struct{})
	time.AfterFunc(wait, func() {
		defer close(done)
		f()
	})
	t.Cleanup(func() { <-done })
}

// preservationDocument has the fields that the tests compare in the document of self-preservation.
type preservationDocument struct {
	State, Reason, Author, Note, Clock string
	Since, Until                       int64
	Enabled, Condition                 bool
	Threshold                          float64
	Population, Withheld               int
	Figures                            struct{ Leases, Counted, Fresh, Expired int }
	Upstream                           map[string]any
	Applications                       []struct {
		App                             string
		Leases, Counted, Fresh, Expired int
		Overdue                         []struct {
			ID     string
			Silent int64 `json:"silent_ms"`
			Ends   int64 `json:"ends_in_ms"`
		}
	}
	Transitions []struct {
		State, Author, Reason   string
		At                      int64
		Counted, Fresh, Expired int
	}
}

// Preservation sends a request under /v1/rollcall/self-preservation, and returns the document that must come back.
func (n *Bubbled) Preservation(t *testing.T, method, path string) preservationDocument {
	t.Helper()
	got := need.Got(n.RoundTrip(t, Request(method, "/v1/rollcall/self-preservation"+path, "")))(t)
	var p preservationDocument
	err := json.Unmarshal([]byte(got.Body), &p)
	need.That(t, err == nil && got.Status == http.StatusOK, "%s %s: %d %s, %v", method, path, got.Status, got.Body, err)
	return p
}

// waiter is a blocking query under way, and its response.
type waiter struct {
	target string
	before Reply // what it read before it began to wait
	woken  bool
	after  Reply
}

// wait starts a blocking query of each target, with the index of a read before it.
func (n *Bubbled) wait(t *testing.T, ctx context.Context, targets []string) []*waiter {
	t.Helper()
	all := make([]*waiter, len(targets))
	for i, target := range targets {
		w := &waiter{target: target, before: n.Send(t, "GET", target, "")}
		all[i] = w
		query := separator(target) + "index=" + strconv.FormatUint(w.before.Index(t), 10) + "&wait=9m"
		go func() {
			// cannot fail: the target is well-formed
			r, _ := http.NewRequestWithContext(ctx, "GET", "http://node"+target+query, nil)
			resp, err := n.client.Do(r)
			if err != nil {
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			w.after, w.woken = Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(text)}, err == nil
		}()
	}
	synctest.Wait()
	for _, w := range all {
		expect.That(t, !w.woken, "%s was answered before anything changed", w.target)
	}
	return all
}

// separator returns what precedes one more parameter of a target.
func separator(target string) string {
	if strings.Contains(target, "?") {
		return "&"
	}
	return "?"
}

// Wakes makes a change while a blocking query of each target waits, and returns a letter for each: W if it was
// answered with another document, w if with the same one, and a dot if it still waits. A query whose document has
// changed must be answered, with a higher index, and no index may go back.
func (n *Bubbled) Wakes(t *testing.T, name string, targets []string, change func()) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel()
		synctest.Wait()
	}()
	all := n.wait(t, ctx, targets)
	change()
	synctest.Wait()
	letters := make([]byte, len(all))
	for i, w := range all {
		now := n.Send(t, "GET", w.target, "")
		before, after := w.before.Index(t), now.Index(t)
		expect.That(t, after >= before, "%s: the index of %s went from %d back to %d", name, w.target, before, after)
		changed := now.Body != w.before.Body
		fresh := n.Send(t, "GET", w.target+separator(w.target)+"made-for-this-request="+url.QueryEscape(name), "")
		expect.That(t, fresh.Body == now.Body && fresh.Index(t) == after, "%s: %s is shared as\n%s\nand is\n%s", name, w.target, now.Body, fresh.Body)
		switch {
		case changed && !(w.woken && after > before && w.after.Body == now.Body):
			t.Errorf("%s: %s changed, its index went from %d to %d, the query that waits for it was answered: %t\n%s\n%s",
				name, w.target, before, after, w.woken, w.before.Body, now.Body)
		case changed:
			letters[i] = 'W'
		case w.woken:
			letters[i] = 'w'
		default:
			letters[i] = '.'
		}
	}
	return string(letters)
}

// Restart makes the node go on from a snapshot, and compares what it serves.
func (n *Bubbled) Restart(t *testing.T, targets []string) {
	t.Helper()
	before := make([]Reply, len(targets))
	for i, target := range targets {
		before[i] = n.Send(t, "GET", target, "")
	}
	n.Set(func(m *fsmtest.Memory) { m.Registry = need.Got(registry.Thaw(m.Registry.Freeze()))(t) })
	for i, target := range targets {
		now := n.Send(t, "GET", target, "")
		expect.That(t, now.Index(t) == before[i].Index(t) && now.Body == before[i].Body,
			"%s has index %d after a restart, want %d:\n%s\n%s", target, now.Index(t), before[i].Index(t), now.Body, before[i].Body)
	}
}

// Post sends a form.
func (n *Bubbled) Post(t *testing.T, path string, fields ...string) Reply {
	t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	n.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return n.Send(t, http.MethodPost, path, form.Encode(), "Content-Type: application/x-www-form-urlencoded")
}

// explained holds the parts of an explanation that tests look at.
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

// Story tells an instance's history, one line per event.
func (e explained) Story() string {
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

// Explain returns what the node knows of an instance of ORDERS.
func (n *Bubbled) Explain(t *testing.T, id string) explained {
	t.Helper()
	got := n.Get(t, "/v1/rollcall/apps/orders/"+id+"/explain?consistency=stale")
	var e explained
	err := json.Unmarshal([]byte(got.Body), &e)
	need.That(t, err == nil && got.Status == http.StatusOK, "%s: %d %s, %v", id, got.Status, got.Body, err)
	expect.That(t, e.App == "ORDERS" && e.ID == id, "it explains %s/%s", e.App, e.ID)
	return e
}

// Fleet registers instances and lets time pass, while only some of them renew.
func (n *Bubbled) Fleet(t *testing.T, all, renewing int, d time.Duration) {
	t.Helper()
	for i := range all {
		n.Perform(t, registry.Register{Instance: NewInstance("FLEET", fmt.Sprint(i))})
	}
	for range int(d / (10 * time.Second)) {
		time.Sleep(10 * time.Second)
		for i := range renewing {
			n.Perform(t, registry.Renew{Key: registry.NewKey("FLEET", fmt.Sprint(i))})
		}
		n.Lead()
	}
}

// gatedRoutes are the fetches that a server refuses while it has nothing to show.
var gatedRoutes = []string{"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/ORDERS", "/eureka/vips/orders", "/eureka/svips/orders"}

// WantFetches fails unless fetches are answered, or all of them refused with an empty 403, and everything else is
// answered.
func (n *Bubbled) WantFetches(t *testing.T, open bool) {
	t.Helper()
	for _, path := range gatedRoutes {
		got := n.Get(t, path)
		expect.That(t, got.Status == 200 == open && (open || got.Status == 403 && got.Body == ""), "GET %s: got %d %q, want it answered: %t", path, got.Status, got.Body, open)
	}
	for _, path := range []string{"/eureka/status", "/v1/rollcall/apps", "/readyz", "/"} {
		expect.Equal(t, n.Get(t, path).Status, 200, "GET %s: got", path)
	}
}

// Bubbled is a handler behind a server with its own settings, and a client, in a bubble of testing/synctest. Its
// connections buffer nothing: a write waits for its reader, so a slow reader is slow by the bubble's clock.
type Bubbled struct {
	*fsmtest.Memory
	Handler *httpd.Handler
	Server  *http.Server
	Pipes   *Pipes
	client  *http.Client
}

// Open opens a connection.
func (n *Bubbled) Open(t *testing.T) net.Conn {
	t.Helper()
	conn := need.Got(n.Pipes.Dial(t.Context(), "", ""))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// OpenRequest sends a request and returns the response after reading only its header.
func (n *Bubbled) OpenRequest(t *testing.T, request string) (*http.Response, error) {
	conn := n.Open(t)
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, err
	}
	method, _, _ := strings.Cut(request, " ")
	return http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
}

// RoundTrip reads a whole response.
func (n *Bubbled) RoundTrip(t *testing.T, request string) (Reply, error) {
	resp, err := n.OpenRequest(t, request)
	if err != nil {
		return Reply{}, err
	}
	body, err := io.ReadAll(resp.Body)
	return Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}, err
}

// Get returns the response to a GET.
func (n *Bubbled) Get(t *testing.T, target string, headers ...string) Reply {
	t.Helper()
	got, err := n.RoundTrip(t, Request("GET", target, "", headers...))
	need.OKf(t, err, "%s", target)
	return got
}

// stream opens a watch.
func (n *Bubbled) stream(t *testing.T, query string, headers ...string) *events {
	t.Helper()
	return NewEvents(t, need.Got(n.OpenRequest(t, Request("GET", "/v1/rollcall/watch"+query, "", headers...)))(t).Body)
}

// Watch opens a Watch and reads its start.
func (n *Bubbled) Watch(t *testing.T, query string, headers ...string) *events {
	t.Helper()
	s := n.stream(t, query, headers...)
	s.Start = s.Want("start")
	return s
}

// Send sends a request with these header lines and returns its response.
func (n *Bubbled) Send(t testing.TB, method, target, body string, headers ...string) Reply {
	t.Helper()
	r := need.Got(http.NewRequest(method, "http://node"+target, strings.NewReader(body)))(t)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	resp := need.Got(n.client.Do(r))(t)
	defer resp.Body.Close()
	return Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(need.Got(io.ReadAll(resp.Body))(t))}
}

// Pipes is a listener in memory. A wait for a pipe lets a bubble's time go on, a wait for a socket does not.
type Pipes struct {
	Dialed chan net.Conn
	Closed chan struct{}
}

// Accept implements net.Listener.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.Dialed:
		return conn, nil
	case <-p.Closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Pipes) Close() error {
	close(p.Closed)
	return nil
}

// Addr implements net.Listener.
func (p *Pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// Dial connects to the node.
func (p *Pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.Dialed <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Waiting starts calls that wait, by name. The function it returns tells their results, or "" while they wait.
func (n *Bubbled) Waiting(t *testing.T, fields ...string) (ended func() map[string]string) {
	t.Helper()
	session := DecodeReply[struct{ ID string }](t, n.Send(t, "POST", "/v1/rollcall/sessions", "", fields...)).ID
	other := DecodeReply[struct{ ID string }](t, n.Send(t, "POST", "/v1/rollcall/sessions", "", fields...)).ID
	need.Equal(t, n.Send(t, "PUT", "/v1/rollcall/locks/l?session="+other, "", fields...).Status, 200, "lock: got")
	key := n.Send(t, "GET", "/v1/kv/k", "", fields...)
	calls := map[string]string{
		"stream": Request("GET", "/v1/rollcall/watch", "", fields...),
		"poll":   Request("GET", "/v1/rollcall/watch?wait=9m", "", fields...),
		"key":    Request("GET", "/v1/kv/k?wait=9m&index="+strconv.FormatUint(key.Index(t), 10), "", fields...),
		"lock":   Request("PUT", "/v1/rollcall/locks/l?wait=9m&session="+session, "", fields...),
	}
	became := make(map[string]*atomic.Value)
	for name, call := range calls {
		end := new(atomic.Value)
		became[name] = end
		go func() {
			got, err := n.RoundTrip(t, call)
			end.Store(fmt.Sprintf("%d, %v", got.Status, err == nil || err == io.ErrUnexpectedEOF))
		}()
	}
	synctest.Wait()
	return func() map[string]string {
		all := map[string]string{}
		for name, end := range became {
			all[name], _ = end.Load().(string)
		}
		return all
	}
}

// fromDC2 is the origin of the servers of datacenter dc2.
var fromDC2 = registry.Origin{Kind: registry.RemoteDC, DC: "dc2"}

// Remote registers ORDERS/i1 as an instance of dc2; heard also records a contact over dc2's link.
func (n *Bubbled) Remote(t *testing.T, heard bool) {
	t.Helper()
	ops := []registry.Op{registry.Replica{Instance: NewInstance("ORDERS", "i1"), Life: 1}}
	if heard {
		ops = append([]registry.Op{registry.Contact{DC: "dc2", Cut: 15_000}}, ops...)
	}
	need.Got(n.Apply(context.Background(), fromDC2, ops...))(t)
}

// Bubble runs a test in virtual time.
func Bubble(t *testing.T, test func(t *testing.T)) { synctest.Test(t, test) }

// WithNode runs a test in a bubble with a node.
func WithNode(t *testing.T, test func(t *testing.T, n *Bubbled)) {
	Bubble(t, func(t *testing.T) { test(t, NewBubbled(t, httpd.Config{})) })
}

// WithInstance is WithNode with the instance i1 of ORDERS registered.
func WithInstance(t *testing.T, test func(t *testing.T, n *Bubbled)) {
	WithNode(t, func(t *testing.T, n *Bubbled) {
		n.Perform(t, registry.Register{Instance: NewInstance("ORDERS", "i1")})
		test(t, n)
	})
}

// InBubble runs a named test in a bubble.
func InBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { Bubble(t, test) })
}

// Poll returns the response to a long poll of the watch.
func (n *Bubbled) Poll(t *testing.T, query string) api.Changes {
	t.Helper()
	got := n.Get(t, "/v1/rollcall/watch"+query)
	var p api.Changes
	err := Strictly(got.Body, &p)
	need.That(t, err == nil && got.Status == 200 && p.Changes != nil && got.Header.Get("X-Rollcall-Index") == p.Index,
		"%s: %d %s, %v", query, got.Status, got.Body, err)
	return p
}
