package httpdtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// liveness bounds what must happen soon: ten times what it should take, and more on a shared machine.
const liveness = time.Minute

// NewNode starts a node with the server's own settings; change may adapt them to the test.
func NewNode(t testing.TB, config httpd.Config, change func(*http.Server)) *Node {
	t.Helper()
	return NewNodeOn(t, config, change, func(l net.Listener) net.Listener { return l })
}

// NewNodeOn is NewNode behind the test's own listener.
func NewNodeOn(t testing.TB, config httpd.Config, change func(*http.Server), on func(net.Listener) net.Listener) *Node {
	t.Helper()
	n := &Node{Memory: fsmtest.New()}
	if config.Service == nil {
		config.Service = n.Memory
	}
	handler := need.Got(httpd.New(config))(t)
	n.Handler = handler
	server := httpd.NewServer("127.0.0.1:0", handler, nil)
	if change != nil {
		change(server)
	}
	listener := need.Got(net.Listen("tcp", server.Addr))(t)
	n.Addr = listener.Addr().String()
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

// ReadReply reads the response to a request.
func ReadReply(t testing.TB, conn net.Conn, request string) Reply {
	t.Helper()
	return nextReply(t, bufio.NewReader(conn), request)
}

// nextReply reads a response from a connection on which others may follow.
func nextReply(t testing.TB, in *bufio.Reader, request string) Reply {
	t.Helper()
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	need.OKf(t, err, "%.100q", request)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	need.That(t, err == nil || resp.Close, "%.100q: read the answer: %v", request, err)
	return Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(body), Closed: resp.Close}
}

// ReadHead reads a response up to its body.
func ReadHead(t testing.TB, conn net.Conn) *http.Response {
	t.Helper()
	return need.Got(http.ReadResponse(bufio.NewReader(conn), nil))(t)
}

// From opens a connection from a loopback address, on which a request has already been made.
func (n *Node) From(t *testing.T, address string) Line {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn := need.Got(dialer.Dial("tcp", n.Addr))(t)
	t.Cleanup(func() { conn.Close() })
	need.OK(t, conn.SetDeadline(time.Now().Add(liveness)))
	l := Line{Conn: conn, In: bufio.NewReader(conn)}
	got := l.RoundTrip(t, Request("GET", "/healthz", ""))
	need.That(t, got.Status == 200, "/healthz: %+v", got)
	return l
}

// Ended reports whether the server closed the connection.
func (l Line) Ended() bool {
	_, err := l.In.ReadByte()
	return err == io.EOF || errors.Is(err, net.ErrClosed)
}

// Works reports whether the connection still serves a request.
func (l Line) Works(t *testing.T) bool {
	t.Helper()
	return l.RoundTrip(t, Request("GET", "/healthz", "")).Status == 200
}

// catalogOnly is the coordination of a node whose keys no test uses.
type catalogOnly struct {
	kv.Service
	Memory *fsmtest.Memory
}

// WatchCatalog implements consul.Coordination.
func (c catalogOnly) WatchCatalog(t registry.Topic) (<-chan struct{}, func()) {
	return c.Memory.Watchers.Join(t)
}

// RaftAddresses implements consul.Coordination.
func (catalogOnly) RaftAddresses() (string, []string) {
	return "10.1.0.2:7762", []string{"10.1.0.1:7761", "10.1.0.2:7762", "10.1.0.3:7763"}
}

// CatalogConfig returns the configuration of a node with a catalog; the node's memory must be put into it.
func CatalogConfig() (config httpd.Config, catalog *catalogOnly) {
	catalog = &catalogOnly{}
	return httpd.Config{Coordination: catalog, Agents: consul.OneAgent, Cluster: ThreeNodes, Node: "n1", Version: "1.2.3"}, catalog
}

// NewCatalog starts a node that serves a catalog.
func NewCatalog(t testing.TB) *Node {
	t.Helper()
	config, catalog := CatalogConfig()
	n := NewNode(t, config, nil)
	catalog.Memory = n.Memory
	return n
}

// Call sends a request of Consul's API.
func (n *Node) Call(t testing.TB, method, target, body string) Reply {
	t.Helper()
	return n.Send(t, Request(method, target, body))
}

// Must sends a request that must be answered 200.
func (n *Node) Must(t testing.TB, method, target, body string) Reply {
	t.Helper()
	got := n.Call(t, method, target, body)
	need.That(t, got.Status == 200, "%s %s: got %d %s", method, target, got.Status, got.Body)
	return got
}

// Read decodes a response.
func Read[T any](t testing.TB, n *Node, target string) T {
	t.Helper()
	var value T
	got := n.Must(t, "GET", target, "")
	need.OKf(t, json.Unmarshal([]byte(got.Body), &value), "GET %s: %s", target, got.Body)
	return value
}

// Index returns the index of a response.
func (r Reply) Index(t testing.TB) uint64 {
	t.Helper()
	var index uint64
	_, err := fmt.Sscan(r.Header.Get("X-Consul-Index"), &index)
	need.That(t, err == nil && index != 0, "X-Consul-Index is %q, want a number above 0", r.Header.Get("X-Consul-Index"))
	return index
}

// Passing reports whether the service with an id is among the passing ones of its name.
func (n *Node) Passing(t testing.TB, name, id string) bool {
	t.Helper()
	services := Read[[]struct{ Service struct{ ID string } }](t, n, "/v1/health/service/"+name+"?passing")
	for _, s := range services {
		if s.Service.ID == id {
			return true
		}
	}
	return false
}

// Checks returns the checks of a service.
func (n *Node) Checks(t testing.TB, name, id string) string {
	t.Helper()
	var texts []string
	for _, c := range Read[[]struct{ ServiceID, CheckID, Status, Output string }](t, n, "/v1/health/checks/"+name) {
		if c.ServiceID == id {
			texts = append(texts, c.CheckID+" "+c.Status+" "+c.Output)
		}
	}
	return strings.Join(texts, ", ")
}

// PlainHeartbeat is a heartbeat of ORDERS/i1 that is read without net/http.
const PlainHeartbeat = "PUT /eureka/apps/ORDERS/i1?status=UP&lastDirtyTimestamp=1000 HTTP/1.1\r\nHost: node\r\nAccept: */*\r\n\r\n"

// Line is a connection with its reader, so that responses can be read one after the other.
type Line struct {
	net.Conn
	In *bufio.Reader
}

// Line opens a connection.
func (n *Node) Line(t testing.TB) Line {
	t.Helper()
	conn := n.Dial(t)
	return Line{Conn: conn, In: bufio.NewReader(conn)}
}

// RoundTrip sends a request and reads the response.
func (l Line) RoundTrip(t testing.TB, request string) Reply {
	t.Helper()
	go func() { _, _ = io.WriteString(l, request) }() // the server may answer before it has read everything
	return l.Read(t, request)
}

func (l Line) Read(t testing.TB, request string) Reply {
	t.Helper()
	return nextReply(t, l.In, request)
}

// Node is a handler behind a real server, over a registry in memory.
type Node struct {
	*fsmtest.Memory
	Handler *httpd.Handler
	Addr    string
}

// Dial opens a connection that gives up after the liveness limit.
func (n *Node) Dial(t testing.TB) net.Conn {
	t.Helper()
	conn := need.Got(net.Dial("tcp", n.Addr))(t)
	t.Cleanup(func() { conn.Close() })
	need.OK(t, conn.SetDeadline(time.Now().Add(liveness)))
	return conn
}

// Reply is a response read from a raw connection.
type Reply struct {
	Status int
	Header http.Header
	Body   string
	Closed bool // the server said that it ends the connection
}

// Says expects a status, and text in the body; of says what was asked.
func (r Reply) Says(t testing.TB, status int, text, of string, args ...any) Reply {
	t.Helper()
	expect.That(t, r.Status == status && strings.Contains(r.Body, text),
		"%s: got %d %q, want %d with %q", fmt.Sprintf(of, args...), r.Status, r.Body, status, text)
	return r
}

// Is expects a status, and a body that is exactly the text.
func (r Reply) Is(t testing.TB, status int, body, of string, args ...any) Reply {
	t.Helper()
	expect.That(t, r.Status == status && r.Body == body, "%s: got %d %q, want %d %q", fmt.Sprintf(of, args...), r.Status, r.Body, status, body)
	return r
}

// With expects a header field, or its absence if the value is empty.
func (r Reply) With(t testing.TB, name, value string) Reply {
	t.Helper()
	expect.Equal(t, r.Header.Get(name), value, "%d %.100q: %s is", r.Status, r.Body, name)
	return r
}

// Send writes bytes unchanged and reads one response. The write may fail if the server has answered and closed before
// it read everything.
func (n *Node) Send(t testing.TB, request string) Reply {
	t.Helper()
	conn := n.Dial(t)
	go func() { _, _ = io.WriteString(conn, request) }()
	return ReadReply(t, conn, request)
}
