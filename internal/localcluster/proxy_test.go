package localcluster

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func echoServer(t *testing.T) (addr string) {
	t.Helper()
	l := need.Got(net.Listen("tcp", Address(0)))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go echo(conn)
		}
	}()
	return l.Addr().String()
}

func echo(conn net.Conn) {
	defer conn.Close()
	b := make([]byte, 1)
	for {
		if _, err := conn.Read(b); err != nil {
			return
		}
		if _, err := conn.Write(b); err != nil {
			return
		}
	}
}

func dialTest(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn := need.Got(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// echoed sends a byte and waits for it for so long.
func echoed(t *testing.T, conn net.Conn, patience time.Duration) error {
	t.Helper()
	need.OK(t, conn.SetDeadline(time.Now().Add(patience)))
	if _, err := conn.Write([]byte{'x'}); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}

func TestProxyCarriesNothingFromCutToHeal(t *testing.T) {
	const (
		patience = 10 * time.Second
		silence  = 50 * time.Millisecond
	)
	p := need.Got(StartProxy(echoServer(t)))(t)
	defer p.Stop()
	before := dialTest(t, p.Addr())
	need.OKf(t, echoed(t, before, patience), "before the cut")
	counted := func() bool { return p.Carried(There) == 1 && p.Carried(Back) == 1 }
	for end := time.Now().Add(patience); !counted() && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // it counts after it has delivered
	}
	p.Cut()
	during := dialTest(t, p.Addr())
	for name, conn := range map[string]net.Conn{"connection from before": before, "new connection": during} {
		err := echoed(t, conn, silence)
		expect.That(t, errors.Is(err, os.ErrDeadlineExceeded), "%s in the cut: got %v, want nothing for %v", name, err, silence)
	}
	expect.That(t, counted(), "it has carried %d bytes there and %d back, want the one from before the cut", p.Carried(There), p.Carried(Back))
	p.Heal()
	if err := echoed(t, before, patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection from before the cut: got %v, want that it was closed", err)
	}
	expect.OKf(t, echoed(t, dialTest(t, p.Addr()), patience), "after the cut")
}

func TestProxyClosesItsConnectionsWhenItStops(t *testing.T) {
	p := need.Got(StartProxy(echoServer(t)))(t)
	conn := dialTest(t, p.Addr())
	need.OK(t, echoed(t, conn, 10*time.Second))
	p.Stop() // returns when both ends are closed
	err := echoed(t, conn, 10*time.Second)
	expect.That(t, err != nil && !errors.Is(err, os.ErrDeadlineExceeded), "got %v, want that the connection was closed", err)
}

func linkedNodes(t *testing.T) ([]*Node, Links) {
	t.Helper()
	nodes := []*Node{
		{Name: "node1", Datacenter: "dc1", Mode: CP, HTTP: "h1", Cluster: "c1"},
		{Name: "node2", Datacenter: "dc1", Mode: CP, HTTP: "h2", Cluster: "c2"},
		{Name: "node3", Datacenter: "dc2", Mode: CP, HTTP: "h3", Cluster: "c3"},
	}
	links, err := StartLinks(nodes, func(from, to *Node) bool { return true })
	t.Cleanup(links.Stop)
	need.OK(t, err)
	return nodes, links
}

func TestLinksIntroduceTheOthersByProxiesAndTheNodeItselfDirectly(t *testing.T) {
	nodes, links := linkedNodes(t)
	links.Introduce(nodes)
	for _, tc := range []struct {
		node      int
		key, want string
	}{
		{node: 1, key: "cluster.join", want: links[1][0].Addr() + ",c2"},
		{node: 1, key: "test.dial", want: "node1=" + links[1][0].Addr()},
		{node: 1, key: "cluster.bootstrap-expect", want: "2"},
		{node: 1, key: "replication.datacenters", want: "dc2=http://" + links[1][2].Addr()},
		{node: 2, key: "test.dial", want: ""}, // it is the only node of its datacenter
		{node: 2, key: "replication.datacenters", want: "dc1=http://" + links[2][0].Addr() + " http://" + links[2][1].Addr()},
	} {
		expect.Equal(t, nodes[tc.node].Settings[tc.key], tc.want, "%s: %s is", nodes[tc.node].Name, tc.key)
	}
}

func TestLinksCountRequestsAndResponsesOfANode(t *testing.T) {
	_, links := linkedNodes(t)
	links[0][1].carried[There].Store(1)
	links[0][1].carried[Back].Store(10)
	links[0][2].carried[There].Store(100)
	links[1][0].carried[Back].Store(1000)
	links[1][2].carried[There].Store(10_000)
	for node, want := range []int64{1101, 10_010, 0} {
		expect.Equal(t, links.Sent(node), want, "node %d: got", node+1)
	}
}
