package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/measure"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/rollcallpeer"
	"github.com/seed-20419f34/rollcall/replication/wire"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// frozenSite is a state of a site: a snapshot in mode cp.
type frozenSite struct {
	snapshot []byte
	frozen   registry.Frozen
	index    uint64
	now      registry.Stamp
}

// statesSite stands for one of two sites that replicate to each other. It does with an operation what a node of its mode does, but for the
// order that Raft makes and the disk.
type statesSite struct {
	consensus bool
	replica   *Replicator // which is not run: the test sends when it wants to
	server    *httptest.Server
	counter   *store.ChangeCounter
	contained *bytes.Buffer // the log of panics in what measures

	mu       sync.Mutex // guards the following
	machine  *fsm.Machine
	registry *registry.Registry // in mode ap
	start    frozenSite
	entries  []fsm.Entry // since start
	index    uint64
	sequence uint64
	now      registry.Stamp
	watchers registry.Watchers
	asked    []link.Task // by replies
	failed   []error     // of calls to the other site
}

const statesTerm = 3

// newStatesSites are two nodes of a datacenter without consensus, or two datacenters with it.
func newStatesSites(t testing.TB, consensus bool) (a, b *statesSite) {
	t.Helper()
	a, b = new(statesSite), new(statesSite)
	for _, s := range []*statesSite{a, b} {
		s.consensus, s.contained = consensus, new(bytes.Buffer)
		s.counter = store.NewChangeCounter(prometheus.NewRegistry(), measure.NewPanics(slog.New(slog.NewTextHandler(s.contained, nil)), prometheus.NewRegistry()))
		s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	}
	kind := link.Node
	if consensus {
		kind = link.Datacenter
	}
	// Third parties send to both.
	stranger := link.PeerConfig{Name: "dc9", Kind: link.Datacenter, URLs: []string{"http://127.0.0.1:1"}}
	connect := func(s *statesSite, datacenter, node, name string, to *statesSite) {
		s.replica = need.Got(newReplicator(Config{Side: link.Side{
			Service: s, Datacenter: datacenter, Node: node, Consensus: consensus, Sender: func() string { return "of " + node },
			Peers: []link.PeerConfig{{Name: name, Kind: kind, URLs: []string{to.server.URL}}, stranger},
		}}, func(env link.Env) link.Link {
			env.Submit = func(task link.Task) { s.asked = append(s.asked, task) }
			env.Failed = func(err error) { s.failed = append(s.failed, err) }
			return rollcallpeer.New(env)
		}))(t)
	}
	if consensus {
		connect(a, "dc1", "n1", "dc2", b)
		connect(b, "dc2", "n4", "dc1", a)
	} else {
		connect(a, "dc1", "n1", "b", b)
		connect(b, "dc1", "n2", "a", a)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		a.server.Close()
		b.server.Close()
	})
	for _, s := range []*statesSite{a, b} {
		s.found()
	}
	return a, b
}

// serve responds as the HTTP side does.
func (s *statesSite) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	reply := s.replica.Receive
	if strings.HasSuffix(r.URL.Path, "/digest") {
		reply = s.replica.Compare
	}
	text, err := func() (text []byte, err error) {
		defer func() {
			if p := recover(); p != nil { // net/http would recover from it, too, and a node that stands on its own goroutine ends
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		return reply(r.Context(), body)
	}()
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.Write(text)
}

// found begins with an empty state.
func (s *statesSite) found() {
	s.now = registry.Stamp{Lease: 1000, Wall: 1_700_000_000_000}
	settings := registry.DefaultSettings()
	if s.consensus {
		s.machine = fsm.NewMachine()
		if err := s.entry(fsm.AppendEstablish(nil, codec.Newest, fsm.Establish{Node: "n", Cluster: "c" + s.server.URL, Level: codec.Newest, Settings: &settings})); err != nil {
			panic(err)
		}
		return
	}
	s.registry = registry.New()
	s.registry.Configure(settings)
	s.registry.WithoutConsensus()
	s.registry.Establish(registry.Epoch{Term: statesTerm, Index: 1}, s.server.URL)
}

// entry applies an entry of the log.
func (s *statesSite) entry(data []byte) error {
	s.index++
	e := fsm.Entry{Index: s.index, Term: statesTerm, Data: data}
	s.entries = append(s.entries, e)
	_, err := s.machine.Apply(e.Index, e.Term, e.Data)
	return err
}

// freeze is the state now.
func (s *statesSite) freeze() frozenSite {
	f := frozenSite{index: s.index, now: s.now}
	if !s.consensus {
		f.frozen = s.registry.Freeze()
		return f
	}
	var b bytes.Buffer
	if _, err := s.machine.Snapshot().WriteTo(&b); err != nil {
		panic(err)
	}
	f.snapshot = b.Bytes()
	return f
}

// thaw goes back to a state, as a node that starts, or gets a snapshot.
func (s *statesSite) thaw(f frozenSite) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start, s.entries, s.index, s.now, s.asked, s.failed = f, nil, f.index, f.now, nil, nil
	s.contained.Reset()
	if s.consensus {
		s.machine = fsm.NewMachine()
		err = s.machine.Restore(bytes.NewReader(f.snapshot))
	} else if s.registry, err = registry.Thaw(f.frozen); err == nil {
		s.registry.WithoutConsensus()
	}
	if err == nil {
		s.counter.Skip(s.view())
		s.watchers = registry.Watchers{}
	}
	return err
}

// view is the newest; the caller holds mu, or nothing else is under way.
func (s *statesSite) view() *registry.View {
	if s.consensus {
		return s.machine.View()
	}
	return s.registry.View()
}

// pass lets time pass.
func (s *statesSite) pass(d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Lease += d.Milliseconds()
	s.now.Wall += d.Milliseconds()
	if s.consensus {
		return s.entry(fsm.AppendWrite(nil, codec.Newest, s.now, 0))
	}
	s.registry.Advance(s.now)
	return nil
}

// perform performs operations as one batch, and shows the result to readers and to what measures.
func (s *statesSite) perform(items ...fsm.Item) ([]registry.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var results []registry.Result
	if s.consensus {
		s.sequence++
		batch := fsm.AppendBatch(nil, codec.Newest, fsm.BatchID{Node: "n" + s.server.URL, Boot: s.start.index + 1, Seq: s.sequence}, items)
		s.index++
		e := fsm.Entry{Index: s.index, Term: statesTerm, Data: fsm.AppendWrite(nil, codec.Newest, s.now, 0, batch)}
		s.entries = append(s.entries, e)
		applied, err := s.machine.Apply(e.Index, e.Term, e.Data)
		if err != nil {
			return nil, err
		}
		if b := applied.Batches[0]; b.Refused || b.Late {
			return nil, fmt.Errorf("the batch was refused: %+v", b)
		}
		results = applied.Batches[0].Results
	} else {
		for _, it := range items {
			if it.Op != nil {
				results = append(results, s.registry.Apply(s.now, statesTerm, it.Origin, it.Op))
			}
		}
	}
	v := s.view()
	s.counter.Count(v)
	s.watchers.Publish(v)
	return results, nil
}

// Apply implements registry.Service.
func (s *statesSite) Apply(_ context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	items := make([]fsm.Item, len(ops))
	for i, op := range ops {
		items[i] = fsm.Item{Origin: origin, Op: op}
	}
	return s.perform(items...)
}

// View implements registry.Service.
func (s *statesSite) View(context.Context, registry.Consistency) (*registry.View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view(), nil
}

// Changes implements registry.Service.
func (s *statesSite) Changes(context.Context, registry.Index, registry.Selector) (registry.Changes, error) {
	return registry.Changes{}, registry.ErrClosed
}

// Health implements registry.Service.
func (s *statesSite) Health() registry.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	return registry.Health{Ready: true, Quorum: true, Leads: s.consensus, Clock: s.now.Lease}
}

// peerOf is the other site.
func (s *statesSite) other() *peer { return s.replica.present()[0] }

// send sends what changed since an index, as a feed does, and what the replies ask for. It returns how many tasks that were.
func (s *statesSite) send(from *registry.Index, beat *registry.Beat) (sent int, err error) {
	p, v := s.other(), s.replica.config.View()
	now := s.replica.config.Clock()
	var tasks []link.Task
	for l := range v.RenewedAfter(*beat, p.Kind == link.Node) {
		tasks = append(tasks, link.Task{Key: l.Key(), Facts: link.Heartbeat})
	}
	*beat = v.NewestBeat()
	changes, err := v.Changes(*from, 0)
	if errors.Is(err, registry.ErrTooOld) {
		*from = v.Index()
		return s.repair()
	}
	for _, c := range changes {
		if task, ok := p.taskOf(v, c, place{after: *from, upto: *from}, now); ok {
			tasks = append(tasks, task)
		}
	}
	*from = v.Index()
	return s.deliver(tasks)
}

// repair compares with the other site, and sends what differs.
func (s *statesSite) repair() (sent int, err error) {
	_, tasks, err := s.other().link.(interface {
		Compare(context.Context, bool) (api.PeerDiff, []link.Task, error)
	}).Compare(context.Background(), true)
	if err != nil {
		return 0, err
	}
	return s.deliver(tasks)
}

func (s *statesSite) deliver(tasks []link.Task) (sent int, err error) {
	for round := 0; len(tasks) > 0; round++ {
		if round == 20 {
			return sent, fmt.Errorf("replies ask for more and more: %d tasks still", len(tasks))
		}
		for some := range slices.Chunk(tasks, 200) {
			if result := s.other().link.ProcessBatch(context.Background(), some); result != batcher.Success {
				return sent, fmt.Errorf("result %v of %d tasks: %w", result, len(some), errors.Join(s.failed...))
			}
		}
		sent += len(tasks)
		tasks, s.asked = s.asked, nil
	}
	return sent, nil
}

// receive is a message of a third party.
func (s *statesSite) receive(local bool, clock int64, ops ...registry.Op) error {
	m := wire.Message{Head: wire.Head{Datacenter: "dc9", Node: "x", Sender: "of x", Incarnation: 7, Clock: clock}}
	if local {
		m.Datacenter = "dc1"
	}
	for _, op := range ops {
		m.Items = append(m.Items, wire.ItemOf(codec.Newest, op))
	}
	reply, err := s.replica.Receive(context.Background(), wire.Encode(codec.Newest, &m))
	if err != nil {
		return err
	}
	var read wire.Reply
	return wire.Decode(reply, &read)
}

// observe reads what people and programs read of a state. All of it only measures or shows.
func (s *statesSite) observe() {
	v := s.replica.config.View()
	for c, h := range v.NewestFirst() {
		h.Events()
		_, _ = v.Why(c)
		v.LastRenewal(c.Lease)
		v.History(c.Lease.Key())
		if c.Kind == registry.Live || c.Kind == registry.Hidden {
			v.Ends(c.Lease)
			v.ReplicaOf(c.Lease, s.now.Lease)
			v.SavedOf(c.Lease)
		} else if rec, ok := v.Removal(c.Lease.Key()); ok {
			v.RemoveOf(rec, s.now.Lease)
			v.Age(rec.Lease, s.now.Lease)
		}
	}
	v.Delta()
	v.Freshness(s.now.Lease)
	v.ComparableIndex(s.now.Lease)
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(expiry.PreservationGauges{Now: func() (*registry.View, int64) { return v, s.now.Lease }}, newMetrics(s.replica.present, s.replica.statusOf))
	if _, err := metrics.Gather(); err != nil {
		panic(err)
	}
}

// check says what is wrong with a site after a case: panics that were contained, and a state that is not the same when it is
// read back, or (in mode cp) reached by the same entries at once.
func (s *statesSite) check() error {
	if s.contained.Len() > 0 {
		return fmt.Errorf("a panic was contained: %.2000s", s.contained)
	}
	if !s.consensus {
		again, err := registry.Thaw(s.registry.Freeze())
		if err == nil && !sameSums(again.View(), s.view()) {
			err = errors.New("the state that was read back is another one")
		}
		return err
	}
	caughtUp, copied := fsm.NewMachine(), fsm.NewMachine()
	if len(s.start.snapshot) > 0 {
		if err := caughtUp.Restore(bytes.NewReader(s.start.snapshot)); err != nil {
			return err
		}
	}
	if _, err := caughtUp.ApplyAll(s.entries); err != nil {
		return err
	}
	if err := copied.Restore(bytes.NewReader(s.freeze().snapshot)); err != nil {
		return err
	}
	want := s.machine.Snapshot().Digest().Parts
	for name, m := range map[string]*fsm.Machine{"caught up": caughtUp, "restored": copied} {
		if got := m.Snapshot().Digest().Parts; !slices.Equal(got, want) {
			return fmt.Errorf("the state of a node that %s has other digests: %v, want %v", name, got, want)
		}
	}
	return nil
}

// sameSums says whether two states have the same instances.
func sameSums(a, b *registry.View) bool {
	if a.Total() != b.Total() {
		return false
	}
	for l := range a.All() {
		if m, ok := b.Find(l.Key()); !ok || l.Sum() != m.Sum() {
			return false
		}
	}
	return true
}
