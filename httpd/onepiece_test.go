package httpd_test

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// tapped counts what is written to its connections, and can let it fail.
type tapped struct {
	net.Listener
	writes atomic.Int64
	fails  atomic.Bool
}

func (l *tapped) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return tappedConn{conn, l}, err
}

type tappedConn struct {
	net.Conn
	of *tapped
}

func (c tappedConn) Write(b []byte) (int, error) {
	if c.of.fails.Load() {
		return 0, net.ErrClosed
	}
	c.of.writes.Add(1)
	return c.Conn.Write(b)
}

// tap starts a node with instances in one application, whose connections are tapped.
func tap(t *testing.T, instances int) (*node, *tapped) {
	t.Helper()
	c := httpd.NewConnections(9, 0, prometheus.NewRegistry())
	tap := new(tapped)
	n := newNodeOn(t, httpd.Config{}, func(s *http.Server) { s.ConnState = c.State }, func(l net.Listener) net.Listener {
		tap.Listener = l
		return c.Listener(tap)
	})
	for i := range instances {
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", fmt.Sprintf("i%d", i))})
	}
	return n, tap
}

func TestListsOfAFewPiecesLeaveInOne(t *testing.T) {
	n, tap := tap(t, 20)
	l := n.line(t)
	var lists []string
	for _, target := range []string{"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/ORDERS", "/v1/rollcall/apps"} {
		lists = append(lists, request("GET", target, "", "Accept: application/json"), request("HEAD", target, "", "Accept: application/json"))
	}
	for _, list := range lists {
		tap.writes.Store(0)
		got := l.roundTrip(t, list)
		size := len(got.body)
		expect.That(t, got.status == 200 && (list[:4] == "HEAD" || size > 4096 && size < 64<<10), "%s: %d with %d bytes", list, got.status, size)
		expect.Equal(t, tap.writes.Load(), 1, list+"written at once:")
	}
	// What follows on the connection is not mixed up with them.
	pipeline := request("GET", "/eureka/apps", "") + request("GET", "/healthz", "") + request("GET", "/eureka/apps/ORDERS", "")
	first, second, third := l.roundTrip(t, pipeline), l.read(t, "GET "), l.read(t, "GET ")
	expect.That(t, len(first.body) > 5000 && second.status == 200 && len(third.body) > 5000, "three at once: %d, %d and %d bytes", len(first.body), len(second.body), len(third.body))
}

func TestListsOfManyPiecesLeaveInPieces(t *testing.T) {
	n, tap := tap(t, 400)
	got := n.line(t).roundTrip(t, request("GET", "/eureka/apps", ""))
	expect.That(t, len(got.body) > 64<<10 && tap.writes.Load() > 1, "%d bytes in %d pieces", len(got.body), tap.writes.Load())
}

func TestListThatCannotBeSentEndsItsConnection(t *testing.T) {
	n, tap := tap(t, 20)
	l := n.line(t)
	need.That(t, l.works(t), "it does not work before")
	tap.fails.Store(true)
	need.Got(l.Write([]byte(request("GET", "/eureka/apps", ""))))(t)
	expect.That(t, l.ended(), "the connection goes on after a response that was lost")
}
