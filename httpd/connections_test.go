package httpd_test

import (
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
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// counted starts a node whose connections are counted.
func counted(t *testing.T, limit, perAddress int) (*httpdtest.Node, *httpd.Connections) {
	t.Helper()
	c := httpd.NewConnections(limit, perAddress, prometheus.NewRegistry())
	n := httpdtest.NewNodeOn(t, httpd.Config{}, func(s *http.Server) { s.ConnState = c.State }, c.Listener)
	return n, c
}

// awaitIdle waits until want connections wait for a request: a client has its response before the server waits again.
func awaitIdle(t *testing.T, c *httpd.Connections, want int) {
	t.Helper()
	httpdtest.Eventually(t, "connections are idle", func() bool { return c.Idle() == want })
}

func TestConnectionsCloseTheLongestIdleOneOfTheAddressWithMost(t *testing.T) {
	n, c := counted(t, 6, 0)
	modest := n.From(t, "127.0.0.2") // idle for longest
	awaitIdle(t, c, 1)
	var greedy []httpdtest.Line
	for i := range 5 {
		greedy = append(greedy, n.From(t, "127.0.0.3"))
		awaitIdle(t, c, 2+i)
	}
	need.That(t, greedy[0].Works(t), "closed before the limit was reached")
	awaitIdle(t, c, 6)
	newcomer := n.From(t, "127.0.0.4")
	expect.That(t, greedy[1].Ended(), "the longest idle connection of the address with five was not closed")
	for name, l := range map[string]httpdtest.Line{"the other address's": modest, "one that asked since": greedy[0], "a newer one": greedy[2], "the new one": newcomer} {
		expect.That(t, l.Works(t), "%s connection was closed", name)
	}
}

func TestConnectionsKeepOneThatWaitsForAResponse(t *testing.T) {
	n, c := counted(t, 2, 0)
	poll := "GET /v1/rollcall/watch HTTP/1.1\r\nHost: node\r\nAccept: text/event-stream\r\n\r\n"
	var waiting []httpdtest.Line
	for range 2 {
		l := n.From(t, "127.0.0.2")
		need.Got(io.WriteString(l, poll))(t)
		if head, err := http.ReadResponse(l.In, nil); err != nil || head.StatusCode != 200 {
			t.Fatal(head, err)
		}
		waiting = append(waiting, l)
	}
	for range 30 { // more than the extra connections above the limit
		need.That(t, n.From(t, "127.0.0.3").Works(t), "a new connection was not served")
	}
	for i, l := range waiting {
		l.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		expect.That(t, expect.Err(l.In.ReadByte()) != io.EOF, "watch %d was closed", i)
	}
	got := c.Count()
	expect.That(t, got <= 2+9, "%d connections, want the limit and its reserve at most", got)
}

func TestConnectionsOfOneAddressAreLimited(t *testing.T) {
	n, c := counted(t, 100, 2)
	first := n.From(t, "127.0.0.2")
	awaitIdle(t, c, 1)
	second, other := n.From(t, "127.0.0.2"), n.From(t, "127.0.0.3")
	awaitIdle(t, c, 3)
	third := n.From(t, "127.0.0.2")
	expect.That(t, first.Ended() && second.Works(t) && third.Works(t) && other.Works(t) && c.Count() == 3, "%d connections, want the first one of the address closed and no other", c.Count())
}

func TestConnectionsCountThoseThatWereTakenOver(t *testing.T) {
	n, c := counted(t, 2, 0)
	idle := takenOver(t, n)
	awaitIdle(t, c, 1)
	busy := takenOver(t, n)
	awaitIdle(t, c, 2)
	l := n.From(t, "127.0.0.2")
	expect.That(t, idle.Ended() && busy.RoundTrip(t, httpdtest.PlainHeartbeat).Status == 200 && l.Works(t), "want the one that was idle for longest closed, and no other")
	busy.Close()
	l.Close()
	httpdtest.Eventually(t, "all connections are forgotten", func() bool { return c.Count() == 0 })
}

func TestDrainMakesEachResponseTheLastOfItsConnection(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	taken, plain := takenOver(t, n), n.Line(t)
	need.That(t, !plain.RoundTrip(t, httpdtest.Request("GET", "/healthz", "")).Closed, "closed before it began")
	n.Handler.Drain()
	for name, l := range map[string]httpdtest.Line{"a connection that was taken over": taken, "another one": plain, "a new one": n.Line(t)} {
		got := l.RoundTrip(t, httpdtest.PlainHeartbeat)
		expect.That(t, got.Status == 200 && got.Closed && l.Ended(), "%s: got %+v, want it closed after an answer that says so", name, got)
	}
}

func TestConnectionsObeyLimitsThatAreReplaced(t *testing.T) {
	n, c := counted(t, 1, 0)
	first := n.From(t, "127.0.0.2")
	awaitIdle(t, c, 1)
	c.SetLimits(2, 0)
	second := n.From(t, "127.0.0.3")
	need.That(t, first.Works(t), "closed below the new limit")
	awaitIdle(t, c, 2)
	c.SetLimits(9, 1)
	n.From(t, "127.0.0.3")
	expect.That(t, second.Ended(), "the address has two connections, and may have one")
	expect.That(t, first.Works(t), "the other address's connection was closed")
}

// tapped counts what is written to its connections, and can make writes fail.
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
func tap(t *testing.T, instances int) (*httpdtest.Node, *tapped) {
	t.Helper()
	c := httpd.NewConnections(9, 0, prometheus.NewRegistry())
	tap := new(tapped)
	n := httpdtest.NewNodeOn(t, httpd.Config{}, func(s *http.Server) { s.ConnState = c.State }, func(l net.Listener) net.Listener {
		tap.Listener = l
		return c.Listener(tap)
	})
	for i := range instances {
		n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", fmt.Sprintf("i%d", i))})
	}
	return n, tap
}

func TestListsOfAFewPiecesLeaveInOne(t *testing.T) {
	n, tap := tap(t, 20)
	l := n.Line(t)
	var lists []string
	for _, target := range []string{"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/ORDERS", "/v1/rollcall/apps"} {
		lists = append(lists, httpdtest.Request("GET", target, "", "Accept: application/json"), httpdtest.Request("HEAD", target, "", "Accept: application/json"))
	}
	for _, list := range lists {
		tap.writes.Store(0)
		got := l.RoundTrip(t, list)
		size := len(got.Body)
		expect.That(t, got.Status == 200 && (list[:4] == "HEAD" || size > 4096 && size < 64<<10), "%s: %d with %d bytes", list, got.Status, size)
		expect.Equal(t, tap.writes.Load(), 1, list+"written at once:")
	}
	// What follows on the connection does not mix with them.
	pipeline := httpdtest.Request("GET", "/eureka/apps", "") + httpdtest.Request("GET", "/healthz", "") + httpdtest.Request("GET", "/eureka/apps/ORDERS", "")
	first, second, third := l.RoundTrip(t, pipeline), l.Read(t, "GET "), l.Read(t, "GET ")
	expect.That(t, len(first.Body) > 5000 && second.Status == 200 && len(third.Body) > 5000, "three at once: %d, %d and %d bytes", len(first.Body), len(second.Body), len(third.Body))
}

func TestListsOfManyPiecesLeaveInPieces(t *testing.T) {
	n, tap := tap(t, 400)
	got := n.Line(t).RoundTrip(t, httpdtest.Request("GET", "/eureka/apps", ""))
	expect.That(t, len(got.Body) > 64<<10 && tap.writes.Load() > 1, "%d bytes in %d pieces", len(got.Body), tap.writes.Load())
}

func TestListThatCannotBeSentEndsItsConnection(t *testing.T) {
	n, tap := tap(t, 20)
	l := n.Line(t)
	need.That(t, l.Works(t), "it does not work before")
	tap.fails.Store(true)
	need.Got(l.Write([]byte(httpdtest.Request("GET", "/eureka/apps", ""))))(t)
	expect.That(t, l.Ended(), "the connection goes on after a response that was lost")
}
