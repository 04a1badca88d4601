package httpd_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/httpd"
)

// pipes is a listener in memory. Who waits for a pipe lets the time of a bubble go on, which a socket
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

// virtualNode is a node and a client in a bubble of testing/synctest: no time passes but what a test sleeps.
type virtualNode struct {
	*memory
	handler *httpd.Handler
	client  *http.Client
}

func newVirtualNode(t testing.TB, config httpd.Config) *virtualNode {
	t.Helper()
	n := &virtualNode{memory: newMemory()}
	config.Service = n.memory
	var err error
	if n.handler, err = httpd.New(config); err != nil {
		t.Fatal(err)
	}
	listener := &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
	server, served := &http.Server{Handler: n.handler}, make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	transport := &http.Transport{DialContext: listener.dial, DisableCompression: true}
	n.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return n
}

// send sends a request with these header lines and returns its answer.
func (n *virtualNode) send(t testing.TB, method, target, body string, headers ...string) reply {
	t.Helper()
	r, err := http.NewRequest(method, "http://node"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	resp, err := n.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{status: resp.StatusCode, header: resp.Header, body: string(text)}
}
