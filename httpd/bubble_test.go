package httpd_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
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
	resp := need.Got(n.openRequest(t, request("GET", "/v1/rollcall/watch"+query, "", headers...)))(t)
	return newEvents(t, resp.Body)
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
	text := need.Got(io.ReadAll(resp.Body))(t)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(text)}
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
