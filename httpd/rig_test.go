package httpd_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// bubbled is a handler behind a server with its own settings, and a client, in a bubble of
// testing/synctest. Its connections hold nothing back: a write waits for its reader, so a slow reader is slow by the bubble's
// clock.
type bubbled struct {
	*registrytest.Memory
	handler *httpd.Handler
	server  *http.Server
	pipes   *pipes
	client  *http.Client
}

func newBubbled(t *testing.T, config httpd.Config) *bubbled {
	t.Helper()
	return newBubbledTLS(t, config, nil)
}

// newBubbledTLS is newBubbled over TLS, for clients that the test makes.
func newBubbledTLS(t *testing.T, config httpd.Config, secure *tls.Config) *bubbled {
	t.Helper()
	n := &bubbled{Memory: registrytest.New(), pipes: &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}}
	switch s := config.Service.(type) {
	case nil:
		config.Service = n.Memory
	case *registrytest.Memory:
		n.Memory = s
	}
	n.handler = need.Got(httpd.New(config))(t)
	n.server = httpd.NewServer("", n.handler, nil)
	n.server.TLSConfig = secure
	served := make(chan error, 1)
	go func() { served <- n.handler.Serve(n.server, n.pipes) }()
	transport := &http.Transport{DialContext: n.pipes.dial, DisableCompression: true}
	n.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		n.server.Close()
		n.handler.Close()
		<-served
	})
	return n
}

// open opens a connection.
func (n *bubbled) open(t *testing.T) net.Conn {
	t.Helper()
	conn := need.Got(n.pipes.dial(t.Context(), "", ""))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// openRequest sends a request and returns the response, of which no more than the header has been read.
func (n *bubbled) openRequest(t *testing.T, request string) (*http.Response, error) {
	conn := n.open(t)
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, err
	}
	method, _, _ := strings.Cut(request, " ")
	return http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
}

// roundTrip reads a whole response.
func (n *bubbled) roundTrip(t *testing.T, request string) (reply, error) {
	resp, err := n.openRequest(t, request)
	if err != nil {
		return reply{}, err
	}
	body, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(body)}, err
}

func (n *bubbled) get(t *testing.T, target string, headers ...string) reply {
	t.Helper()
	got, err := n.roundTrip(t, request("GET", target, "", headers...))
	need.OKf(t, err, "%s", target)
	return got
}

// stream opens a watch.
func (n *bubbled) stream(t *testing.T, query string, headers ...string) *events {
	t.Helper()
	return newEvents(t, need.Got(n.openRequest(t, request("GET", "/v1/rollcall/watch"+query, "", headers...)))(t).Body)
}

// watch opens a watch and reads its start.
func (n *bubbled) watch(t *testing.T, query string, headers ...string) *events {
	t.Helper()
	s := n.stream(t, query, headers...)
	s.start = s.want("start")
	return s
}

// send sends a request with these header lines and returns its response.
func (n *bubbled) send(t testing.TB, method, target, body string, headers ...string) reply {
	t.Helper()
	r := need.Got(http.NewRequest(method, "http://node"+target, strings.NewReader(body)))(t)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	resp := need.Got(n.client.Do(r))(t)
	defer resp.Body.Close()
	return reply{status: resp.StatusCode, header: resp.Header, body: string(need.Got(io.ReadAll(resp.Body))(t))}
}

// after has f done in the bubble when so much time has passed. The test does not end before that is done.
func after(t *testing.T, wait time.Duration, f func()) {
	done := make(chan struct{})
	time.AfterFunc(wait, func() {
		defer close(done)
		f()
	})
	t.Cleanup(func() { <-done })
}

// pipes is a listener in memory. A wait for a pipe lets the time of a bubble go on, a wait for a socket
// does not.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialed:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.dialed <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// liveness bounds what must happen soon: ten times what it should take, and more where the machine is
// shared.
const liveness = time.Minute

// node is a handler behind a real server, over a registry in memory.
type node struct {
	*registrytest.Memory
	handler *httpd.Handler
	addr    string
}

// newNode starts a node with the server's own settings; change may adapt them to the test.
func newNode(t testing.TB, config httpd.Config, change func(*http.Server)) *node {
	t.Helper()
	return newNodeOn(t, config, change, func(l net.Listener) net.Listener { return l })
}

// newNodeOn is newNode behind a listener of the test's.
func newNodeOn(t testing.TB, config httpd.Config, change func(*http.Server), on func(net.Listener) net.Listener) *node {
	t.Helper()
	n := &node{Memory: registrytest.New()}
	if config.Service == nil {
		config.Service = n.Memory
	}
	handler := need.Got(httpd.New(config))(t)
	n.handler = handler
	server := httpd.NewServer("127.0.0.1:0", handler, nil)
	if change != nil {
		change(server)
	}
	listener := need.Got(net.Listen("tcp", server.Addr))(t)
	n.addr = listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- handler.Serve(server, on(listener)) }()
	t.Cleanup(func() {
		server.Close()
		handler.Close()
		expect.OK(t, handler.Shutdown(context.Background()))
		<-served
	})
	return n
}

// dial opens a connection that gives up after the liveness limit.
func (n *node) dial(t testing.TB) net.Conn {
	t.Helper()
	conn := need.Got(net.Dial("tcp", n.addr))(t)
	t.Cleanup(func() { conn.Close() })
	need.OK(t, conn.SetDeadline(time.Now().Add(liveness)))
	return conn
}

// reply is a response read from a raw connection.
type reply struct {
	status int
	header http.Header
	body   string
	closed bool // the server said that it ends the connection
}

// says expects a status, and text in the body; of says what it is the reply to.
func (r reply) says(t testing.TB, status int, text, of string, args ...any) reply {
	t.Helper()
	expect.That(t, r.status == status && strings.Contains(r.body, text),
		"%s: got %d %q, want %d with %q", fmt.Sprintf(of, args...), r.status, r.body, status, text)
	return r
}

// is expects a status, and a body that is nothing but the text.
func (r reply) is(t testing.TB, status int, body, of string, args ...any) reply {
	t.Helper()
	expect.That(t, r.status == status && r.body == body, "%s: got %d %q, want %d %q", fmt.Sprintf(of, args...), r.status, r.body, status, body)
	return r
}

// with expects a header field; "": none.
func (r reply) with(t testing.TB, name, value string) reply {
	t.Helper()
	expect.Equal(t, r.header.Get(name), value, "%d %.100q: %s is", r.status, r.body, name)
	return r
}

// send writes bytes as they are and reads one response. The write may fail when the server has
// answered and closed before it read everything.
func (n *node) send(t testing.TB, request string) reply {
	t.Helper()
	conn := n.dial(t)
	go func() { _, _ = io.WriteString(conn, request) }()
	return readReply(t, conn, request)
}

func readReply(t testing.TB, conn net.Conn, request string) reply {
	t.Helper()
	return nextReply(t, bufio.NewReader(conn), request)
}

// nextReply reads the response to a request from a connection on which others may follow.
func nextReply(t testing.TB, in *bufio.Reader, request string) reply {
	t.Helper()
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	need.OKf(t, err, "%.100q", request)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	need.That(t, err == nil || resp.Close, "%.100q: read the answer: %v", request, err)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(body), closed: resp.Close}
}

// request is a well-formed request with these header lines and body.
func request(method, target, body string, headers ...string) string {
	lines := []string{method + " " + target + " HTTP/1.1", "Host: node"}
	lines = append(lines, headers...)
	if body != "" {
		lines = append(lines, "Content-Length: "+decimal(len(body)))
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

// instanceJSON is a registration of ORDERS/i1.
const instanceJSON = `{"instance":{"instanceId":"i1","hostName":"h","app":"ORDERS","ipAddr":"10.0.0.1","status":"UP",` +
	`"port":{"$":8080,"@enabled":"true"},"securePort":{"$":443,"@enabled":"false"},` +
	`"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"}}}`

const instanceXML = `<instance><instanceId>i1</instanceId><hostName>h</hostName><app>ORDERS</app><ipAddr>10.0.0.1</ipAddr>` +
	`<status>UP</status><dataCenterInfo class="x"><name>MyOwn</name></dataCenterInfo></instance>`

// newInstance is an instance as a client registers it.
func newInstance(app, id string) *registry.Instance {
	return &registry.Instance{
		InstanceID: id, HostName: "host-" + id, App: app, IPAddr: "10.0.0.1", Status: registry.Up, CountryID: 1,
		Port: registry.Port{Number: 8080, Enabled: true}, SecurePort: registry.Port{Number: 443},
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, VIP: strings.ToLower(app), LastDirty: 1000,
	}
}

func gzipped(text string) string {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, _ = io.WriteString(w, text) // memory does not fail
	_ = w.Close()
	return buf.String()
}

// readHead reads a response up to its body.
func readHead(t testing.TB, conn net.Conn) *http.Response {
	t.Helper()
	return need.Got(http.ReadResponse(bufio.NewReader(conn), nil))(t)
}

// A server that closes a connection on what it has not read waits for half a second before, by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
