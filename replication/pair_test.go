package replication

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// server is a Rollcall server with all of its replication.
type server struct {
	*registrytest.Memory
	*Replicator
	http *httptest.Server

	mu       sync.Mutex
	fail     http.HandlerFunc // responds in its place; nil: the server is well
	messages [][]byte         // that came
}

func newServer() *server {
	s := &server{Memory: registrytest.New()}
	s.http = httptest.NewServer(s)
	return s
}

// ServeHTTP responds as the HTTP side does.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		fail(w, r)
		return
	}
	reply := s.Compare
	if !strings.HasSuffix(r.URL.Path, "/digest") {
		s.mu.Lock()
		s.messages = append(s.messages, body)
		s.mu.Unlock()
		reply = s.Receive
	}
	text, err := reply(r.Context(), body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Write(text)
}

// failWith has the server respond like this, or as it should (nil).
func (s *server) failWith(fail http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// runPair has two servers replicate to each other until the test ends.
func runPair(t testing.TB, kind link.Kind) (a, b *server) {
	t.Helper()
	a, b = newServer(), newServer()
	start := func(s *server, datacenter, node, name string, to *server) {
		c := Config{Side: link.Side{
			Service: s.Memory, Datacenter: datacenter, Node: node, Consensus: kind == link.Datacenter, Sender: func() string { return "of " + node },
			Peers: []link.PeerConfig{{Name: name, Kind: kind, URLs: []string{to.http.URL}, Flow: link.Flow{BatchDelay: 10 * time.Millisecond, CongestionDelay: 20 * time.Millisecond}}},
		}}
		s.Replicator = need.Got(New(c))(t)
	}
	if kind == link.Node {
		start(a, "dc1", "n1", "b", b)
		start(b, "dc1", "n2", "a", a)
	} else {
		start(a, "dc1", "n1", "dc2", b)
		start(b, "dc2", "n4", "dc1", a)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	for _, s := range []*server{a, b} {
		go func() { ended <- s.Run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range 2 {
			expect.OK(t, <-ended)
		}
		a.http.Close()
		b.http.Close()
	})
	return a, b
}

// changes is how many changes a server was sent. The renewal in an act of a client may be sent once
// more after it.
func (s *server) changes(t testing.TB) (n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, body := range s.messages {
		var m wire.Message
		need.OK(t, wire.Decode(body, &m))
		for _, item := range m.Items {
			if _, renew := item.Op.(registry.Renew); !renew {
				n++
			}
		}
	}
	return n
}

func (s *server) register(t testing.TB, dirty int64, ids ...string) {
	t.Helper()
	for _, id := range ids {
		s.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", id, dirty)})
	}
}

func (s *server) cancel(t testing.TB, id string) {
	t.Helper()
	s.Perform(t, registry.Cancel{Key: registry.NewKey("ORDERS", id)})
}

// idle says that a server has sent its peer everything.
func idle(s *server) bool {
	p := s.Status()[0]
	return p.Pending == 0 && p.InFlight == 0 && p.LagChanges == 0
}

func same(a, b *server) bool {
	if a.Newest().Total() != b.Newest().Total() {
		return false
	}
	for l := range a.Newest().All() {
		if m, ok := b.Newest().Find(l.Key()); !ok || l.Sum() != m.Sum() {
			return false
		}
	}
	return true
}

// Two whole replicators: changes flow both ways at once, are there once, and then there is silence.
func TestTwoReplicatorsAgreeAndFallSilent(t *testing.T) {
	for _, kind := range []link.Kind{link.Node, link.Datacenter} {
		t.Run(kind.String(), func(t *testing.T) {
			a, b := runPair(t, kind)
			const each = 300
			for n := range each {
				a.register(t, 1, fmt.Sprint("a-", n))
				b.register(t, 1, fmt.Sprint("b-", n))
			}
			peertest.Eventually(t, "both have all", func() bool { return a.Newest().Total() == 2*each && same(a, b) })
			for n := range each / 2 {
				a.cancel(t, fmt.Sprint("a-", n))
				b.Perform(t, registry.SetOverride{Key: registry.NewKey("ORDERS", fmt.Sprint("b-", n)), Status: registry.OutOfService})
			}
			peertest.Eventually(t, "both have what is left", func() bool { return a.Newest().Total() == each+each/2 && same(a, b) })

			peertest.Eventually(t, "nothing is left to say", func() bool { return idle(a) && idle(b) })
			index := [2]registry.Index{a.Newest().Index(), b.Newest().Index()}
			sent := [2]int{a.changes(t), b.changes(t)}
			for range 3 { // comparisons take nothing up again
				for _, s := range []*server{a, b} {
					d, err := s.Repair(context.Background(), s.Replicator.config.Peers[0].Name)
					expect.That(t, err == nil && d.Apps == 0, "got %+v, %v, want no difference", d, err)
				}
			}
			expect.Equal(t, [2]registry.Index{a.Newest().Index(), b.Newest().Index()}, index, "the indexes went from %v to", index)
			expect.Equal(t, [2]int{a.changes(t), b.changes(t)}, sent, "%v changes had come, and then", sent)
		})
	}
}

// Changes made while a peer is away arrive when it is back, in whichever way it was away.
func TestTwoReplicatorsCatchUpAfterOneWasAway(t *testing.T) {
	for _, c := range []struct {
		name string
		away func(s *server)
	}{
		{"busy", func(s *server) {
			s.failWith(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		}},
		{"closes", func(s *server) { s.failWith(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }) }},
		{"garbage", func(s *server) {
			s.failWith(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := runPair(t, link.Datacenter)
			a.register(t, 1, "1", "2", "3")
			peertest.Eventually(t, "the peer has them", func() bool { return same(a, b) })
			c.away(b)
			a.register(t, 2, "1")
			a.cancel(t, "2")
			b.register(t, 1, "theirs")
			peertest.Eventually(t, "the other way is open", func() bool {
				_, ok := a.Newest().Find(registry.NewKey("ORDERS", "theirs"))
				return ok
			})
			peertest.Eventually(t, "it fails", func() bool { return a.Status()[0].LastError != nil })
			b.failWith(nil)
			if c.name == "garbage" { // that is nothing to wait for, so a comparison finds it
				a.Pass(11 * time.Second)
				b.Pass(11 * time.Second)
				need.Got(a.Repair(context.Background(), "dc2"))(t)
			}
			peertest.Eventually(t, "both are equal", func() bool { return same(a, b) })
		})
	}
}
