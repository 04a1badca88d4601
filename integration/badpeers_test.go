package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// badPeers are peers that are no servers: how each treats a connection, and what the node must report of it.
var badPeers = []struct {
	name, reason string
	treat        func(net.Conn)
}{
	{"hangs", "time", func(net.Conn) {}},
	{"garbage", "malformed HTTP", func(c net.Conn) { respondAndClose(c, "\x16\x03\x01 \xff\xfe no server at all\r\n\r\n") }},
	{"busy", "503", func(c net.Conn) {
		respondAndClose(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy")
	}},
	{"breaks", "EOF", func(c net.Conn) {
		respondAndClose(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"datacenter\":")
	}},
	{"nonsense", "answer", func(c net.Conn) { respondAndClose(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n[{]}") }},
}

// respondAndClose writes a response to whatever has come, and closes the connection.
func respondAndClose(c net.Conn, what string) {
	_ = c.SetDeadline(time.Now().Add(CallLimit)) // a connection may come without a call
	_, _ = c.Read(make([]byte, 64<<10))
	_, _ = io.WriteString(c, what) // best effort
	c.Close()
}

// startBadPeer listens and gives every connection the same treatment, until the test ends.
func startBadPeer(t *testing.T, treat func(net.Conn)) (url string) {
	t.Helper()
	l := need.Got(net.Listen("tcp", FreeAddr(t)))(t)
	var conns []net.Conn
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			conns = append(conns, c)
			serving.Go(func() { treat(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
		for _, c := range conns {
			c.Close()
		}
	})
	return "http://" + l.Addr().String()
}

// TestPeersThatMisbehaveDisturbNoOther gives a node five peers that are no datacenters beside a healthy one.
// Everything reaches the healthy one while the others still fail, clients are not kept waiting, and the
// node says what is wrong with each.
func TestPeersThatMisbehaveDisturbNoOther(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		here := NewCluster(t, Config{AP: ap, Nodes: 1, DC: "dc1", Settings: map[string]string{"replication.read-timeout": "1s"}})
		there := NewCluster(t, Config{AP: ap, Nodes: 1, DC: "dc2"})
		peers := []string{"dc2=" + there.Nodes[0].URL()}
		for _, bad := range badPeers {
			peers = append(peers, bad.name+"="+startBadPeer(t, bad.treat))
		}
		here.Nodes[0].Settings["replication.datacenters"] = strings.Join(peers, ",")
		there.Nodes[0].Settings["replication.datacenters"] = "dc1=" + here.Nodes[0].URL()
		here.Start()
		there.Start()

		n := here.Nodes[0]
		h := startHerd(t, "HERD", 9, here.Nodes)
		awaitListed(t, there.Nodes[0], wantListed(h.ids()...))
		for _, bad := range badPeers {
			mustFail(t, n, bad.name, bad.reason)
		}
		ids := h.ids()
		for i := range 300 { // more than a batch, while the others hang and fail
			ids = append(ids, fmt.Sprintf("new-%03d", i))
			mustRegister(t, n, Instance{App: "NEW", ID: ids[len(ids)-1]})
		}
		mustDo(t, "override", n.Override("NEW", "new-000", "OUT_OF_SERVICE"))
		mustDo(t, "cancel", n.Cancel("NEW", "new-001"))
		ids = append(ids[:len(h.ids())+1], ids[len(h.ids())+2:]...)
		awaitListed(t, there.Nodes[0], wantListed(ids...))
		awaitStatus(t, there.Nodes[0], "NEW", "new-000", "OUT_OF_SERVICE")
		Eventually(t, replicated, "the healthy peer has everything", func() error {
			p, err := n.Peer("dc2")
			if err == nil && (p.State != "ok" || p.LagChanges != 0) {
				err = fmt.Errorf("it is %+v", p)
			}
			return err
		})
		for _, bad := range badPeers {
			mustFail(t, n, bad.name, bad.reason)
		}
		h.stop()
		h.check(t)
	})
}

// mustFail waits until a node says that a peer fails, why, and that it lags.
func mustFail(t *testing.T, n *Node, peer, reason string) {
	t.Helper()
	Eventually(t, replicated, "the node says what is wrong with "+peer, func() error {
		p, err := n.Peer(peer)
		if err == nil && (p.State != "failing" || !strings.Contains(p.Reason, reason) || p.LagChanges == 0) {
			err = fmt.Errorf("it says %+v, want failing because of %q", p, reason)
		}
		return err
	})
}

// TestWithoutConsensusANodeStartsBesidePeersThatMisbehave: it has no peer to copy from, and goes on with what it has.
func TestWithoutConsensusANodeStartsBesidePeersThatMisbehave(t *testing.T) {
	t.Parallel()
	for _, bad := range badPeers {
		t.Run(bad.name, func(t *testing.T) {
			t.Parallel()
			c := NewCluster(t, Config{AP: true, Nodes: 1, Settings: map[string]string{"replication.read-timeout": "1s"}})
			n := c.Nodes[0]
			n.Settings["replication.nodes"] += "," + startBadPeer(t, bad.treat)
			c.Start()
			mustRegister(t, n, Instance{App: "ORDERS", ID: "orders-1"})
			c.mustListEverywhere(t, "orders-1")
		})
	}
}

// tape stands in front of a node and records what other servers send to it.
type tape struct {
	*httptest.Server
	mu       sync.Mutex
	messages [][]byte
}

// messagePath is where Rollcall servers send changes.
const messagePath = "/v1/rollcall/replication"

// newTape passes everything on to the node.
func newTape(t *testing.T, n *Node) *tape {
	t.Helper()
	r := &tape{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // the sender is gone
		}
		if req.URL.Path == messagePath {
			r.mu.Lock()
			r.messages = append(r.messages, body)
			r.mu.Unlock()
		}
		response := n.Do(Request{Method: req.Method, Path: req.URL.RequestURI(), Body: body, ContentType: req.Header.Get("Content-Type")})
		if response.Status == 0 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(response.Status)
		_, _ = w.Write(response.Body) // the sender may be gone
	}))
	t.Cleanup(r.Close)
	return r
}

// play sends everything again, in its order, and returns how much that was.
func (r *tape) play(t *testing.T, n *Node) (messages int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, message := range r.messages {
		r := Request{Method: http.MethodPost, Path: messagePath, Body: message, ContentType: "application/octet-stream"}
		expect.OKf(t, n.Do(r).is(200), "a message that came before")
	}
	return len(r.messages)
}

// hasRenewal says whether a message with a heartbeat was recorded.
func (r *tape) hasRenewal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, message := range r.messages {
		var m wire.Message
		if err := wire.Decode(message, &m); err != nil {
			return err
		}
		for _, item := range m.Items {
			if _, ok := item.Op.(registry.Renew); ok {
				return nil
			}
		}
	}
	return fmt.Errorf("none of %d messages has a heartbeat", len(r.messages))
}

// TestReplicationMessageThatIsSentAgainChangesNothing records what one datacenter sends to another, and plays it when
// the instances were cancelled or have changed.
func TestReplicationMessageThatIsSentAgainChangesNothing(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		here := NewCluster(t, Config{AP: ap, Nodes: 1, DC: "dc1"})
		there := NewCluster(t, Config{AP: ap, Nodes: 1, DC: "dc2"})
		from, to := here.Nodes[0], there.Nodes[0]
		tape := newTape(t, to)
		from.Settings["replication.datacenters"] = "dc2=" + tape.URL
		to.Settings["replication.datacenters"] = "dc1=" + from.URL()
		here.Start()
		there.Start()

		for _, id := range []string{"canceled", "overridden"} {
			mustRegister(t, from, Instance{App: "ORDERS", ID: id})
		}
		mustDo(t, "override", from.Override("ORDERS", "overridden", "OUT_OF_SERVICE"))
		awaitListed(t, to, wantListed("canceled", "overridden"))
		awaitStatus(t, to, "ORDERS", "overridden", "OUT_OF_SERVICE")
		mustDo(t, "heartbeat", from.Renew("ORDERS", "overridden"))
		Eventually(t, replicated, "a heartbeat is told", tape.hasRenewal)
		mustDo(t, "end of the override", from.Do(Request{Method: http.MethodDelete, Path: path("ORDERS", "overridden") + "/status?value=UP"}))
		mustDo(t, "cancel", from.Cancel("ORDERS", "canceled"))
		awaitListed(t, to, wantListed("overridden"))
		awaitStatus(t, to, "ORDERS", "overridden", "UP")
		mustBeStill(t, []*Node{from, to})

		before := index(t, to)
		need.That(t, tape.play(t, to) != 0, "nothing was recorded")
		expect.Equal(t, index(t, to), before, "messages that came before took the registry from %s to", before)
		awaitListed(t, to, wantListed("overridden"))
		awaitStatus(t, to, "ORDERS", "overridden", "UP")
	})
}

// TestReplicationMessagesAreBoundedAt8MiB sends one byte more, and as much as is allowed.
func TestReplicationMessagesAreBoundedAt8MiB(t *testing.T) {
	t.Parallel()
	const limit = 8 << 20
	eachMode(t, func(t *testing.T, ap bool) {
		n := StartCluster(t, Config{AP: ap, Nodes: 1, Settings: map[string]string{"replication.datacenters": "dc2=http://" + FreeAddr(t)}}).Nodes[0]
		bodies := map[string]func(size int) []byte{
			messagePath: messageOf,
			"/eureka/peerreplication/batch/": func(size int) []byte {
				const head = `{"replicationList":[]`
				return []byte(head + strings.Repeat(" ", size-len(head)-1) + "}")
			},
		}
		for path, of := range bodies {
			for size, want := range map[int]int{limit: http.StatusOK, limit + 1: http.StatusRequestEntityTooLarge} {
				body := of(size)
				Eventually(t, ReadyLimit, fmt.Sprintf("%d bytes for %s", size, path), func() error {
					response := n.Do(Request{Method: http.MethodPost, Path: path, Body: body, ContentType: "application/json"})
					if response.Status == 0 { // the connection was closed before everything was written
						return response.Err
					}
					expect.That(t, response.Status == want, "%d bytes for %s: %v, want %d", size, path, response, want)
					return nil
				})
			}
		}
	})
}

// messageOf is a message of so many bytes, with an item that is not valid.
func messageOf(size int) []byte {
	of := func(owner int) []byte {
		return wire.Encode(codec.Newest, &wire.Message{
			Head:  wire.Head{Datacenter: "dc2", Node: "n2", Sender: "s", Incarnation: 1, Clock: 1, Sequence: 1},
			Items: []wire.Item{wire.ItemOf(codec.Newest, registry.Remove{Owner: strings.Repeat("x", owner)})},
		})
	}
	about := size - 100
	return of(about + size - len(of(about)))
}
