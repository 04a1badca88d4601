package rollcallpeer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// site is a Rollcall server: a registry, what it replies to its peers, and its links to them.
type site struct {
	*fsmtest.Memory
	*Receiver
	server *httptest.Server
	links  map[string]*Link

	judge access.Judge // judges who sends; the zero Judge refuses nobody

	mu       sync.Mutex
	fail     func(w http.ResponseWriter, r *http.Request) bool // true if it has responded
	requests []recorded                                        // requests received
	tasks    []link.Task                                       // tasks that replies asked for
	sent     map[string]int                                    // facts that peers accepted
	failures []error
	refused  []string // what peers refused, and with a leading "-" what they accepted
}

// recorded is a request as it arrived.
type recorded struct {
	path string
	body []byte
}

func newSite() *site {
	s := &site{Memory: fsmtest.New(), links: make(map[string]*Link), sent: make(map[string]int)}
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// serve responds as the HTTP side does.
func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, recorded{r.URL.Path, body})
	fail := s.fail
	s.mu.Unlock()
	if fail != nil && fail(w, r) {
		return
	}
	var reply []byte
	ctx := r.Context()
	if s.judge.Refuses != nil {
		ctx = access.Judged(ctx, s.judge)
	}
	switch r.URL.Path {
	case messagePath:
		reply, err = s.Receive(ctx, body)
	case digestPath:
		reply, err = s.Compare(r.Context(), body)
	case statePath:
		if node := s.Waits(); node != "" {
			w.Header().Set(waitsHeader, node)
		}
		err = s.State(r.Context(), r.URL.Query().Get("datacenter"), w)
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), statusFor(err))
		return
	}
	w.Write(reply)
}

func statusFor(err error) int {
	switch {
	case errors.Is(err, ErrMalformed):
		return http.StatusBadRequest
	case errors.Is(err, ErrStranger):
		return http.StatusForbidden
	case errors.Is(err, ErrAhead):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

// become gives the site its role and its peers.
func (s *site) become(t testing.TB, datacenter, node string, consensus bool, peers ...link.PeerConfig) {
	t.Helper()
	for i := range peers {
		setting.Fill(&peers[i].Flow)
	}
	s.Receiver = NewReceiver(link.Side{
		Service: s.Memory, Datacenter: datacenter, Node: node, Consensus: consensus, Peers: peers,
		Sender: func() string { return "of " + node }, Log: slog.New(slog.DiscardHandler), Incarnation: link.NewIncarnation(),
	})
	for _, p := range peers {
		s.links[p.Name] = s.linkTo(p)
	}
	t.Cleanup(func() {
		s.server.Close()
		for _, l := range s.links {
			l.calls.client.CloseIdleConnections()
		}
	})
}

func (s *site) linkTo(p link.PeerConfig) *Link {
	origin := registry.Origin{Kind: registry.LocalPeer}
	if p.Kind == link.Datacenter {
		origin = registry.Origin{Kind: registry.RemoteDC, DC: p.Name}
	}
	record := func(what func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		what()
	}
	return New(link.Env{
		Side: s.side, Peer: p, Origin: origin,
		Submit: func(t link.Task) { record(func() { s.tasks = append(s.tasks, t) }) },
		Sent:   func(fact string) { record(func() { s.sent[fact]++ }) },
		Refused: func(key registry.Key, fact, why string) {
			record(func() {
				if why == "" {
					fact = "-" + fact
				}
				s.refused = append(s.refused, fact+" "+key.String())
			})
		},
		Succeeded: func() {},
		GaveUp:    func() {},
		Failed:    func(err error) { record(func() { s.failures = append(s.failures, err) }) },
	}).(*Link)
}

// only returns the one link of a site.
func (s *site) only() *Link {
	for _, l := range s.links {
		return l
	}
	return nil
}

// twoDatacenters returns two datacenters with consensus.
func twoDatacenters(t testing.TB) (a, b *site) {
	t.Helper()
	a, b = newSite(), newSite()
	a.become(t, "dc1", "n1", true, link.PeerConfig{Name: "dc2", Kind: link.Datacenter, URLs: []string{b.server.URL}})
	b.become(t, "dc2", "n4", true, link.PeerConfig{Name: "dc1", Kind: link.Datacenter, URLs: []string{a.server.URL}})
	return a, b
}

// twoNodes returns two nodes of one datacenter without consensus.
func twoNodes(t testing.TB) (a, b *site) {
	t.Helper()
	a, b = newSite(), newSite()
	a.become(t, "dc1", "n1", false, link.PeerConfig{Name: "b", Kind: link.Node, URLs: []string{b.server.URL}})
	b.become(t, "dc1", "n2", false, link.PeerConfig{Name: "a", Kind: link.Node, URLs: []string{a.server.URL}})
	return a, b
}

// eachKind runs a test with two datacenters, and with two nodes of one.
func eachKind(t *testing.T, test func(t *testing.T, a, b *site)) {
	for name, sites := range map[string]func(testing.TB) (a, b *site){"datacenters": twoDatacenters, "nodes": twoNodes} {
		t.Run(name, func(t *testing.T) {
			a, b := sites(t)
			test(t, a, b)
		})
	}
}

// deliver sends tasks, which must succeed, and then those that the replies ask for.
func (s *site) deliver(t testing.TB, tasks ...link.Task) {
	t.Helper()
	for len(tasks) > 0 {
		need.Equal(t, s.only().ProcessBatch(context.Background(), tasks), batcher.Success, "failures %v: result", s.failed())
		s.mu.Lock()
		tasks, s.tasks = s.tasks, nil
		s.mu.Unlock()
	}
}

// deliverChanges delivers what changed at a site after an index, as the feed does.
func (s *site) deliverChanges(t testing.TB, after registry.Index) {
	t.Helper()
	v := s.Newest()
	changes := need.Got(v.Changes(after, 0))(t)
	var tasks []link.Task
	for _, c := range changes {
		switch {
		case c.Kind == registry.Canceled || c.Kind == registry.Evicted:
			if c.Lease.Origin.Kind == registry.Client {
				rec, _ := v.Removal(c.Lease.Key())
				tasks = append(tasks, link.Task{Key: c.Lease.Key(), Facts: link.Canceled, First: c.Index, Remove: v.RemoveOf(rec, s.Clock())})
			}
		case c.Lease.ByClient > after:
			tasks = append(tasks, link.Task{Key: c.Lease.Key(), Facts: link.Registered, First: c.Index})
		}
	}
	s.deliver(t, tasks...)
}

// failed returns the failures so far.
func (s *site) failed() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.failures)
}

// failWith makes the site respond like this, or properly if fail is nil.
func (s *site) failWith(fail func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// received returns the requests so far for a path.
func (s *site) received(path string) []recorded {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r recorded) bool { return r.path != path })
}

// accepted returns how often peers accepted a fact.
func (s *site) accepted(fact string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[fact]
}

// lease returns the lease of ORDERS/id, which must exist.
func (s *site) lease(t testing.TB, id string) *registry.Lease {
	t.Helper()
	l, ok := s.Newest().Find(ordersID(id))
	need.That(t, ok, "%s is not at %s", ordersID(id), s.side.Node)
	return l
}

// without fails if ORDERS/id exists.
func (s *site) without(t testing.TB, id string) {
	t.Helper()
	l, ok := s.Newest().Find(ordersID(id))
	need.That(t, !ok, "%s is at %s: %+v", ordersID(id), s.side.Node, l)
}

// equal fails unless both sites have the same, except for owners and times.
func equal(t rapid.TB, a, b *site) {
	t.Helper()
	sums := func(s *site) map[registry.Key]uint64 {
		all := make(map[registry.Key]uint64)
		for l := range s.Newest().All() {
			all[l.Key()] = l.Sum()
		}
		return all
	}
	here, there := sums(a), sums(b)
	for key, sum := range here {
		if there[key] != sum {
			l, _ := a.Newest().Find(key)
			m, _ := b.Newest().Find(key)
			t.Errorf("%s: %s has %+v of %+v\n%s has %+v", key, a.side.Node, l, l.Instance, b.side.Node, m)
		}
		delete(there, key)
	}
	for key := range there {
		t.Errorf("%s is at %s only", key, b.side.Node)
	}
}

func ordersID(id string) registry.Key { return registry.Key{App: "ORDERS", ID: id} }

// both lets the same time pass at both sites.
func both(a, b *site, d time.Duration) {
	a.Pass(d)
	b.Pass(d)
}

// TestMain fails if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDifferenceOfFilesIsLoggedOnceAndOnlyIfItStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(strings.Builder)
		own := "a"
		f := &fileComparison{own: func() string { return own }, log: slog.New(slog.NewTextHandler(log, nil))}
		hear := func(digest string, times int) {
			for range times {
				f.heard(digest)
				time.Sleep(10 * time.Second)
			}
		}
		want := func(differs, known bool, warnings int) {
			t.Helper()
			d, ok := f.differs()
			expect.That(t, d == differs && ok == known || !known && !ok, "got %v, %v, want %v, %v", d, ok, differs, known)
			expect.Equal(t, strings.Count(log.String(), "level=WARN"), warnings, "warnings:")
		}
		want(false, false, 0)
		hear("", 20) // an older version
		want(false, false, 0)
		hear("a", 3)
		want(false, true, 0)
		own = "b" // the change reaches this node first
		hear("a", 5)
		want(true, true, 0)
		hear("b", 1)
		want(false, true, 0)
		hear("none", 20)
		want(true, true, 1)
		own = "none"
		want(false, true, 1)
	})
}

// panicking is a registry, as in a node without consensus, where operations on one instance panic.
type panicking struct {
	registry.Service
	id      string
	servers []string // of the calls
}

// Apply implements registry.Service.
func (p *panicking) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	p.servers = append(p.servers, access.ServerOf(ctx))
	results := make([]registry.Result, len(ops))
	for i, op := range ops {
		key, _ := registry.KeyOf(op)
		switch {
		case key.ID != p.id || p.id == "":
			done, err := p.Service.Apply(ctx, origin, op)
			if err != nil {
				return nil, err
			}
			results[i] = done[0]
		case len(ops) == 1:
			return nil, registry.ErrPanicked
		default:
			results[i].Outcome = registry.Panicked
		}
	}
	return results, nil
}

func TestItemThatPanicsAtThePeerIsSentThreeTimesAndTheOthersOnce(t *testing.T) {
	a, b := twoNodes(t)
	p := &panicking{Service: b.Memory, id: "2"}
	b.Receiver.side.Service = p
	var tasks []link.Task
	for _, id := range []string{"1", "2", "3"} {
		a.Perform(t, registry.Register{Instance: peertest.Instance("ORDERS", id, 1)})
		tasks = append(tasks, link.Task{Key: ordersID(id), Facts: link.Registered, First: a.Newest().Index()})
	}
	a.deliver(t, tasks...)
	b.lease(t, "1")
	b.lease(t, "3")
	b.without(t, "2")
	expect.Equal(t, len(b.requests), link.MaxTries, "messages")
	expect.Slice(t, a.refused, []string{"-register ORDERS/1", "-register ORDERS/3", "register ORDERS/2"}, "accepted and refused")
	expect.Equal(t, a.accepted("register"), 2, "registrations that were accepted")
	expect.That(t, len(a.failed()) == 0, "the peer counts as failing: %v", a.failed())
	expect.Slice(t, slices.Compact(p.servers), []string{"n1"}, "server that is named")

	p.id = ""
	a.deliver(t, tasks[1])
	b.lease(t, "2")
	expect.Equal(t, a.refused[len(a.refused)-1], "-register ORDERS/2", "said last")
}
