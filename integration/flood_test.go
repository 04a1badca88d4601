package integration

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// unfinishedFor is how long a node waits for the rest of a request. A busy machine may take longer for a flood.
const unfinishedFor = 15 * time.Second

// TestASenderThatFloodsANodeWithBatchesWaitsForItselfOnly has one address send batches of three megabytes on six
// connections, while a batch that it never finishes has its share. It is told why it has to wait; the batches of
// another address, and heartbeats even of the same one, get through.
func TestASenderThatFloodsANodeWithBatchesWaitsForItselfOnly(t *testing.T) {
	t.Parallel()
	n := StartCluster(t, Config{AP: true, Nodes: 1, DC: "dc1", Settings: map[string]string{"replication.datacenters": "dc2=http://" + FreeAddr(t)}}).Nodes[0]
	mustRegister(t, n, Instance{App: "ORDERS", ID: "o1"})
	flooder, other := senderAt(t, "127.0.0.1"), senderAt(t, "127.0.0.2")
	if answer := other.post(n, batchOf("n8", 1, 1)); answer.Status != 200 {
		t.Fatalf("before the flood: %v", answer)
	}

	began := time.Now()
	unfinished := need.Got(net.Dial("tcp", n.HTTP))(t)
	defer unfinished.Close()
	need.Got(fmt.Fprintf(unfinished, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n{", messagePath, n.HTTP, 4<<20))(t)
	Eventually(t, ReadyLimit, "the flooder's share is in use", func() error { return mustWait(flooder.post(n, batchOf("n9", 1, 1))) })

	large := batchOf("n9", 2, 10_000)
	var flood sync.WaitGroup
	for range 6 {
		flood.Go(func() {
			err := Poll(ReadyLimit, func() error {
				answer := flooder.post(n, large)
				if answer.Status == 0 { // the connection was closed before everything was written
					return answer.Err
				}
				if err := mustWait(answer); err != nil {
					if answer.Status == 200 && time.Since(began) >= unfinishedFor {
						t.Logf("too late to tell: %v", err)
						return nil
					}
					t.Error(err)
				}
				return nil
			})
			expect.OK(t, err)
		})
	}
	over := make(chan struct{})
	go func() { flood.Wait(); close(over) }()
	for clock, flooded := int64(2), true; flooded; clock++ {
		select {
		case <-over:
			flooded = false
		case <-time.After(20 * time.Millisecond):
		}
		answer := other.post(n, batchOf("n8", clock, 20))
		expect.That(t, answer.Status == 200, "a batch of another address: %v", answer)
		if answer := n.Renew("ORDERS", "o1"); answer.Status != 200 {
			t.Errorf("a heartbeat: %v", answer)
		}
	}
	unfinished.Close()
	Eventually(t, ReadyLimit, "the flooder has its share again", func() error {
		if answer := flooder.post(n, large); answer.Status != 200 {
			return fmt.Errorf("got %v", answer)
		}
		return nil
	})
}

// mustWait says what an answer lacks that is to tell a sender to wait.
func mustWait(answer Answer) error {
	if answer.Status != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" || !strings.Contains(string(answer.Body), "this address has as many replication batches under way") {
		return fmt.Errorf("a batch of the flooder: %v, want 503, when to try again, and why", answer)
	}
	return nil
}

// batchOf is a message of a node with so many heartbeats, of some 310 bytes each.
func batchOf(node string, clock int64, items int) []byte {
	app, id := strings.Repeat("F", 50), strings.Repeat("i", 240)
	m := wire.Message{Head: wire.Head{Datacenter: "dc1", Node: node, Sender: node, Clock: clock}}
	for i := range items {
		m.Items = append(m.Items, wire.ItemOf(registry.Renew{Key: registry.Key{App: app, ID: fmt.Sprintf("%s%05d", id, i)}, Life: 1, LastDirty: 1}))
	}
	return wire.Encode(&m)
}

// sender is a client that speaks from an address of its own.
type sender struct{ http.Client }

func senderAt(t *testing.T, address string) *sender {
	t.Helper()
	from := &net.TCPAddr{IP: net.ParseIP(address)}
	l, err := net.ListenTCP("tcp", from)
	if err != nil {
		lacks(t, "this system's loopback has no address %s: %v", address, err)
	}
	l.Close()
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: from}).DialContext, MaxIdleConnsPerHost: 8}
	t.Cleanup(transport.CloseIdleConnections)
	return &sender{http.Client{Transport: transport, Timeout: CallLimit}}
}

// post sends a batch.
func (s *sender) post(n *Node, batch []byte) Answer {
	resp, err := s.Post(n.URL()+messagePath, "application/octet-stream", bytes.NewReader(batch))
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: body, Err: err}
}
