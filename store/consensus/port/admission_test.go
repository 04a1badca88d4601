package port

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

// idle opens connections that say nothing, each anew as soon as it is closed, until the returned function is
// called.
func idle(t *testing.T, address string, connections int) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Error(err)
					return
				}
				closed := make(chan struct{})
				go func() {
					conn.Read(make([]byte, 1)) // until it is closed, by either side
					close(closed)
				}()
				select {
				case <-closed:
					conn.Close()
				case <-done:
					conn.Close()
					<-closed
					return
				}
			}
		})
	}
	return func() {
		close(done)
		all.Wait()
	}
}

func TestAdmissionOfNodesIsNotKeptOutByConnectionsThatSayNothing(t *testing.T) {
	ours := newAuthority(t)
	for _, tls := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", tls), func(t *testing.T) {
			files := func(node string) store.TLSFiles {
				if !tls {
					return store.TLSFiles{}
				}
				return ours.issue(t, node)
			}
			server := testPort(t, Hello{Cluster: "c", ServerID: "n1.aa"}, files("n1"))
			client := testPort(t, Hello{Cluster: "c", ServerID: "n2.bb"}, files("n2"))
			stop := idle(t, server.Addr().String(), 600)
			defer stop()
			eventually(t, "the idle connections are there", func() bool {
				server.admission.mu.Lock()
				defer server.admission.mu.Unlock()
				return server.admission.parked > 500
			})
			for i := range 20 {
				conn, _, err := client.dial(streamNode, server.Addr().String(), limit)
				need.OKf(t, err, "connection %d", i)
				need.OKf(t, echo(conn), "connection %d", i)
				conn.Close()
			}
		})
	}
}

// fakeConn is a connection from an address.
type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr        { return addr(c.from) }
func (c *fakeConn) SetDeadline(time.Time) error { return nil }
func (c *fakeConn) Close() error                { c.closed = true; return nil }

func TestAdmissionBoundsUnfinishedHandshakesPerAddressAndInAll(t *testing.T) {
	a := newAdmission()
	now := time.Now()
	knock := func(address string, n int) (callers []*caller) {
		for i := range n {
			c := newCaller(&fakeConn{from: fmt.Sprintf("%s:%d", address, i)})
			if a.startHandshake(c, now) {
				callers = append(callers, c)
			}
		}
		return callers
	}
	ousted := func(callers []*caller) (n int) {
		for _, c := range callers {
			if c.ousted.Load() {
				n++
			}
		}
		return n
	}
	atOnce := knock("10.0.0.1", 2000)
	if got, want := len(atOnce), handshakesPerAddress+handshakesAtOnce; got != want || ousted(atOnce) > 0 {
		t.Errorf("%d of 2000 connections that come at once are heard and %d of those ousted, want %d and none", got, ousted(atOnce), want)
	}
	for _, c := range atOnce[:5] {
		c.spoke.Store(true)
	}
	now = now.Add(silentFor + 1)
	next := knock("10.0.0.1", 1)
	if got := a.unfinished("10.0.0.1"); len(next) != 1 || got != handshakesPerAddress || ousted(atOnce[:5]) > 0 {
		t.Errorf("a blink later there are %d unfinished handshakes, %d new and %d that had spoken were ousted, want %d, 1 and none", got, len(next), ousted(atOnce[:5]), handshakesPerAddress)
	}
	now = now.Add(unfinishedFor)
	if knock("10.0.0.1", 5); ousted(atOnce[:5]) != 5 {
		t.Errorf("%d of 5 handshakes that were begun and not finished made room, want all", ousted(atOnce[:5]))
	}

	node := knock("10.0.9.9", 1)[0]
	need.That(t, a.finishHandshake(node, "n2.bb", true), "a node of the cluster found no room")
	for i := range 50 {
		now = now.Add(time.Second)
		knock(fmt.Sprintf("10.0.1.%d", i), handshakesPerAddress)
	}
	got, want := a.waiting, handshakesInAll
	expect.That(t, got == want, "%d handshakes of unknown addresses are not finished, want %d at most", got, want)
	known := knock("10.0.9.9", handshakesPerAddress)
	now = now.Add(time.Second)
	knock("10.0.2.1", 1)
	if a.waiting != handshakesInAll || ousted(known) > 0 {
		t.Errorf("%d handshakes are counted, %d of a known address were ousted: want those of strangers alone", a.waiting, ousted(known))
	}
	for _, of := range a.open {
		for of.Len() > 0 {
			a.removeHandshake(of.Front().Value.(*caller))
		}
	}
	a.remove(node)
	expect.That(t, a.waiting == 0 && len(a.open) == 0 && a.nodesAll == 0 && len(a.nodes) == 0,
		"after all have ended %d, %d, %d and %d are counted", a.waiting, len(a.open), a.nodesAll, len(a.nodes))
}

func TestAdmissionClosesTheOldestConnectionOfANodeThatOpensEverMore(t *testing.T) {
	a := newAdmission()
	var conns []*fakeConn
	for i := range connectionsPerNode + 3 {
		conn := &fakeConn{from: fmt.Sprintf("10.0.0.1:%d", i)}
		c := newCaller(conn)
		need.That(t, a.startHandshake(c, time.Now()) && a.finishHandshake(c, "n2.bb", true), "connection %d found no room", i)
		conns = append(conns, conn)
	}
	for i, conn := range conns {
		expect.Equal(t, conn.closed, i < 3, "connection %d was closed:", i)
	}
}
