package httpd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// counted starts a node of which the connections are counted.
func counted(t *testing.T, limit, perAddress int) (*node, *httpd.Connections) {
	t.Helper()
	c := httpd.NewConnections(limit, perAddress, prometheus.NewRegistry())
	n := newNodeOn(t, httpd.Config{}, func(s *http.Server) { s.ConnState = c.State }, c.Listener)
	return n, c
}

// from opens a connection from an address of loopback, on which something was asked.
func (n *node) from(t *testing.T, address string) line {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn := need.Got(dialer.Dial("tcp", n.addr))(t)
	t.Cleanup(func() { conn.Close() })
	need.OK(t, conn.SetDeadline(time.Now().Add(liveness)))
	l := line{conn, bufio.NewReader(conn)}
	got := l.roundTrip(t, request("GET", "/healthz", ""))
	need.That(t, got.status == 200, "/healthz: %+v", got)
	return l
}

func (l line) ended() bool {
	_, err := l.in.ReadByte()
	return err == io.EOF || errors.Is(err, net.ErrClosed)
}

func (l line) works(t *testing.T) bool {
	t.Helper()
	return l.roundTrip(t, request("GET", "/healthz", "")).status == 200
}

// awaitIdle waits until so many connections wait for a request: a response is read before its server waits.
func awaitIdle(t *testing.T, c *httpd.Connections, want int) {
	t.Helper()
	eventually(t, "connections are idle", func() bool { return c.Idle() == want })
}

func TestConnectionsCloseTheLongestIdleOneOfTheAddressWithMost(t *testing.T) {
	n, c := counted(t, 6, 0)
	modest := n.from(t, "127.0.0.2") // idle for longest of all
	awaitIdle(t, c, 1)
	var greedy []line
	for i := range 5 {
		greedy = append(greedy, n.from(t, "127.0.0.3"))
		awaitIdle(t, c, 2+i)
	}
	need.That(t, greedy[0].works(t), "closed before the limit was reached")
	awaitIdle(t, c, 6)
	newcomer := n.from(t, "127.0.0.4")
	expect.That(t, greedy[1].ended(), "the longest idle connection of the address with five was not closed")
	for name, l := range map[string]line{"the other address's": modest, "one that asked since": greedy[0], "a newer one": greedy[2], "the new one": newcomer} {
		expect.That(t, l.works(t), "%s connection was closed", name)
	}
}

func TestConnectionsKeepOneThatWaitsForAResponse(t *testing.T) {
	n, c := counted(t, 2, 0)
	poll := "GET /v1/rollcall/watch HTTP/1.1\r\nHost: node\r\nAccept: text/event-stream\r\n\r\n"
	var waiting []line
	for range 2 {
		l := n.from(t, "127.0.0.2")
		need.Got(io.WriteString(l, poll))(t)
		if head, err := http.ReadResponse(l.in, nil); err != nil || head.StatusCode != 200 {
			t.Fatal(head, err)
		}
		waiting = append(waiting, l)
	}
	for range 30 { // more than there are above the limit
		need.That(t, n.from(t, "127.0.0.3").works(t), "a new connection was not served")
	}
	for i, l := range waiting {
		l.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		expect.That(t, expect.Err(l.in.ReadByte()) != io.EOF, "watch %d was closed", i)
	}
	got := c.Count()
	expect.That(t, got <= 2+9, "%d connections, want the limit and its reserve at most", got)
}

func TestConnectionsOfOneAddressAreLimited(t *testing.T) {
	n, c := counted(t, 100, 2)
	first := n.from(t, "127.0.0.2")
	awaitIdle(t, c, 1)
	second, other := n.from(t, "127.0.0.2"), n.from(t, "127.0.0.3")
	awaitIdle(t, c, 3)
	third := n.from(t, "127.0.0.2")
	expect.That(t, first.ended() && second.works(t) && third.works(t) && other.works(t) && c.Count() == 3, "%d connections, want the first one of the address closed and no other", c.Count())
}

func TestConnectionsCountThoseThatWereTakenOver(t *testing.T) {
	n, c := counted(t, 2, 0)
	idle := n.takenOver(t)
	awaitIdle(t, c, 1)
	busy := n.takenOver(t)
	awaitIdle(t, c, 2)
	l := n.from(t, "127.0.0.2")
	expect.That(t, idle.ended() && busy.roundTrip(t, plainHeartbeat).status == 200 && l.works(t), "want the one that was idle for longest closed, and no other")
	busy.Close()
	l.Close()
	eventually(t, "all connections are forgotten", func() bool { return c.Count() == 0 })
}

func TestDrainMakesEachResponseTheLastOfItsConnection(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	taken, plain := n.takenOver(t), n.line(t)
	need.That(t, !plain.roundTrip(t, request("GET", "/healthz", "")).closed, "closed before it began")
	n.handler.Drain()
	for name, l := range map[string]line{"a connection that was taken over": taken, "another one": plain, "a new one": n.line(t)} {
		got := l.roundTrip(t, plainHeartbeat)
		expect.That(t, got.status == 200 && got.closed && l.ended(), "%s: got %+v, want it closed after an answer that says so", name, got)
	}
}

// A heartbeat that has arrived is answered, and the response says that it was the last.
func TestShutdownServesHeartbeatsThatAreOnTheirWay(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	const many = 20
	var lines []line
	for range many {
		lines = append(lines, n.takenOver(t))
	}
	down := make(chan error, 1)
	for _, l := range lines {
		need.Got(io.WriteString(l, plainHeartbeat))(t)
	}
	go func() { down <- n.handler.Shutdown(context.Background()) }()
	last := 0
	for i, l := range lines {
		got := l.read(t, "PUT ")
		expect.That(t, got.status == 200 && l.ended(), "heartbeat %d: got %+v, want its answer and the end of the connection", i, got)
		if got.closed {
			last++
		}
	}
	expect.OK(t, <-down)
	t.Logf("%d of %d answers said that they were the last", last, many)
}

func TestConnectionsObeyLimitsThatAreReplaced(t *testing.T) {
	n, c := counted(t, 1, 0)
	first := n.from(t, "127.0.0.2")
	awaitIdle(t, c, 1)
	c.SetLimits(2, 0)
	second := n.from(t, "127.0.0.3")
	need.That(t, first.works(t), "closed below the new limit")
	awaitIdle(t, c, 2)
	c.SetLimits(9, 1)
	n.from(t, "127.0.0.3")
	expect.That(t, second.ended(), "the address has two connections, and may have one")
	expect.That(t, first.works(t), "the other address's connection was closed")
}

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
