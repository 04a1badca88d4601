package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/world"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/rollcallpeer"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// frozenSite is a state of a site: a snapshot in mode cp.
type frozenSite struct {
	snapshot []byte
	frozen   registry.Frozen
	index    uint64
	lead     registry.Epoch
	now      registry.Stamp
	level    byte // of a site without consensus
}

// stateEntry is what a site performed: an entry of the log, or a batch without one.
type stateEntry struct {
	fsm.Entry        // mode cp
	without   []byte // mode cp: Data without the items that were refused; nil if none was
	applied   fsm.Applied
	now       registry.Stamp
	items     []fsm.Item // mode ap
	refused   []bool     // which of items were refused
	results   []registry.Result
	raised    byte // mode ap
	doubts    bool // mode ap: all renewals before it count as unconfirmed
}

// tokensSeen has, by name of what is held, the tokens that were handed out, and to whom.
type tokensSeen map[string]map[registry.Index]string

// rise records that a session holds a name by a token. A token that went back, or that two sessions had, is an error.
func (t tokensSeen) rise(name string, fence registry.Index, by string) error {
	seen := t[name]
	if last, ok := seen[fence]; ok && last == by {
		return nil
	}
	for before, who := range seen {
		if before >= fence {
			return fmt.Errorf("I5: %s has token %d, held by %q, after token %d of %q", name, fence, by, before, who)
		}
	}
	if seen == nil {
		seen = map[registry.Index]string{}
	}
	seen[fence], t[name] = by, seen
	return nil
}

// statesSite stands for one of two sites that replicate to each other. It treats an operation as a node of its mode
// does, except for Raft's ordering and the disk.
type statesSite struct {
	consensus bool
	name      string
	replica   *Replicator   // not running: the test sends when it wants to
	contained *bytes.Buffer // the log of panics in what only measures
	counter   *store.ChangeCounter
	seen      func(fsm.Item, string) // called with the outcome of each operation

	mu       sync.Mutex // guards the fields below
	machine  *fsm.Machine
	registry *registry.Registry // in mode ap
	writes   byte               // the level, in mode ap
	start    frozenSite
	history  []stateEntry // since start
	index    uint64
	term     uint64
	lead     registry.Epoch
	sequence uint64
	now      registry.Stamp
	tokens   tokensSeen
	from     registry.Index // up to which the other site was told
	beat     registry.Beat
	asked    []link.Task // by replies
	failed   []error     // of calls to the other site
}

// statesNetwork connects the sites: a call to an address is served in memory.
type statesNetwork map[string]chan net.Conn

type statesListener struct {
	address string
	calls   chan net.Conn
}

func (l statesListener) Accept() (net.Conn, error) {
	if c, ok := <-l.calls; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l statesListener) Close() error   { return nil }
func (l statesListener) Addr() net.Addr { return &net.UnixAddr{Name: l.address} }

// Listen implements world.Network.
func (n statesNetwork) Listen(_, address string) (net.Listener, error) {
	n[address] = make(chan net.Conn)
	return statesListener{address, n[address]}, nil
}

// DialContext implements world.Network.
func (n statesNetwork) DialContext(_ context.Context, _, address string) (net.Conn, error) {
	calls, ok := n[address]
	if !ok {
		return nil, errors.New("there is nobody at " + address)
	}
	near, far := net.Pipe()
	calls <- far
	return near, nil
}

// newStatesSites returns two nodes of a datacenter without consensus, or two datacenters, at least
// the first of them with consensus.
func newStatesSites(t testing.TB, consensusA, consensusB bool) (a, b *statesSite) {
	t.Helper()
	network := statesNetwork{}
	a, b = &statesSite{consensus: consensusA, name: "a:80"}, &statesSite{consensus: consensusB, name: "b:80"}
	for _, s := range []*statesSite{a, b} {
		s.contained = new(bytes.Buffer)
		s.counter = store.NewChangeCounter(prometheus.NewRegistry(), store.NewPanics(slog.New(slog.NewTextHandler(s.contained, nil)), prometheus.NewRegistry()))
		listener := need.Got(network.Listen("tcp", s.name))(t)
		server := &http.Server{Handler: http.HandlerFunc(s.serve)}
		go server.Serve(listener)
		t.Cleanup(func() {
			close(network[s.name])
			server.Close()
		})
	}
	kind := link.Datacenter
	if !consensusA {
		kind = link.Node
	}
	// Third parties send to both.
	stranger := link.PeerConfig{Name: "dc9", Kind: link.Datacenter, URLs: []string{"http://127.0.0.1:1"}}
	connect := func(s *statesSite, datacenter, node, name string, to *statesSite) {
		s.replica = need.Got(newReplicator(Config{Side: link.Side{
			Service: s, Datacenter: datacenter, Node: node, Consensus: s.consensus, Sender: func() string { return "of " + node },
			// as peers that know each other's
			Levels: func() codec.Reads { return codec.OwnReads("0", 0, min(a.level(), b.level())) },
			Peers:  []link.PeerConfig{{Name: name, Kind: kind, URLs: []string{"http://" + to.name}, World: &world.World{Network: network}}, stranger},
		}}, func(env link.Env) link.Link {
			env.Submit = func(task link.Task) { s.asked = append(s.asked, task) }
			env.Failed = func(err error) { s.failed = append(s.failed, err) }
			return rollcallpeer.New(env)
		}))(t)
	}
	if kind == link.Datacenter {
		connect(a, "dc1", "n1", "dc2", b)
		connect(b, "dc2", "n4", "dc1", a)
	} else {
		connect(a, "dc1", "n1", "b", b)
		connect(b, "dc1", "n2", "a", a)
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
			// net/http would recover from it, too, but a panic in a node's own goroutine ends the node
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		return reply(r.Context(), body)
	}()
	if err != nil {
		s.failed = append(s.failed, err)
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.Write(text)
}

// found begins with an empty state at a level.
func (s *statesSite) found(level byte) error {
	s.start, s.history, s.index, s.term, s.tokens = frozenSite{}, nil, 0, 3, tokensSeen{}
	s.now = registry.Stamp{Lease: 1000, Wall: 1_700_000_000_000}
	settings := registry.DefaultSettings()
	if s.consensus {
		s.machine = fsm.NewMachine()
		return s.establish(&settings, level)
	}
	s.registry, s.writes = registry.New(), level
	s.registry.SetLevel(level)
	s.registry.Configure(settings)
	s.registry.WithoutConsensus()
	s.registry.Establish(registry.Epoch{Term: s.term, Index: 1}, s.name)
	s.registry.Advance(s.now)
	return nil
}

// establish begins the next leadership.
func (s *statesSite) establish(settings *registry.Settings, level byte) error {
	s.term++
	applied, err := s.entry(fsm.AppendEstablish(nil, s.level(), fsm.Establish{Node: "n", Cluster: "c" + s.name, Level: level, Settings: settings}), nil)
	s.lead = applied.Epoch
	return err
}

// level returns the level that the site writes.
func (s *statesSite) level() byte {
	if s.consensus {
		return s.machine.Level()
	}
	return s.writes
}

func (s *statesSite) epoch() registry.Epoch {
	if s.consensus {
		return s.lead
	}
	return s.registry.Epoch()
}

// ending and expired return what a leader ends.
func (s *statesSite) ending(at int64) []registry.Op {
	if s.consensus {
		return s.machine.Ending(at)
	}
	return s.registry.Ending(at)
}

func (s *statesSite) expired(at int64) []registry.EvictItem {
	if s.consensus {
		return s.machine.Expired(at, 3)
	}
	return s.registry.Expired(at, 3)
}

// entry applies an entry of the log.
func (s *statesSite) entry(data []byte, without func(fsm.Applied) []byte) (fsm.Applied, error) {
	s.index++
	e := fsm.Entry{Index: s.index, Term: s.term, Data: data}
	applied, err := s.machine.Apply(e.Index, e.Term, e.Data)
	if err != nil {
		return applied, err
	}
	h := stateEntry{Entry: e, applied: applied}
	if without != nil {
		h.without = without(applied)
	}
	s.history = append(s.history, h)
	return applied, nil
}

// freeze returns the current state, as it is written.
func (s *statesSite) freeze() frozenSite {
	f := frozenSite{index: s.index, lead: s.lead, now: s.now, level: s.writes}
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

// thaw goes back to a state.
func (s *statesSite) thaw(f frozenSite) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start, s.history, s.index, s.now, s.asked, s.failed = f, nil, f.index, f.now, nil, nil
	s.term, s.lead, s.tokens = 4, f.lead, tokensSeen{}
	s.contained.Reset()
	if err := s.restart(f); err != nil {
		return err
	}
	s.from, s.beat = s.view().Index(), s.view().NewestBeat()
	return nil
}

// restart makes the site go on with a state as it was written, like a node that starts, or receives a snapshot.
func (s *statesSite) restart(f frozenSite) (err error) {
	if s.consensus {
		s.machine = fsm.NewMachine()
		err = s.machine.Restore(bytes.NewReader(f.snapshot))
	} else {
		s.registry, err = thawAP(f)
		s.writes = f.level
	}
	if err == nil {
		s.counter.Skip(s.view())
	}
	return err
}

// startOver restarts the site's process. Without consensus it then marks all renewals unconfirmed: its lease clock
// stood still for an unknown time.
func (s *statesSite) startOver() error {
	if err := s.restart(s.freeze()); err != nil || s.consensus {
		return err
	}
	s.registry.Doubt()
	s.history = append(s.history, stateEntry{now: s.now, doubts: true})
	return nil
}

// thawAP reads the records of the local disk.
func thawAP(f frozenSite) (*registry.Registry, error) {
	read, err := fsm.ParseFrozen(fsm.AppendFrozen(nil, f.level, f.frozen))
	if err != nil {
		return nil, err
	}
	read.Free = f.frozen.Free
	for _, l := range f.frozen.Leases {
		again, err := fsm.ParseLeaseState(fsm.AppendLeaseState(nil, f.level, l))
		if err != nil {
			return nil, err
		}
		read.Leases = append(read.Leases, again)
	}
	for _, rec := range f.frozen.Removals {
		again, err := fsm.ParseRemoval(fsm.AppendRemoval(nil, f.level, rec))
		if err != nil {
			return nil, err
		}
		read.Removals = append(read.Removals, again)
	}
	r, err := registry.Thaw(read)
	if err == nil {
		r.SetLevel(f.level)
		r.WithoutConsensus()
	}
	return r, err
}

// digestAP covers everything on the local disk.
func digestAP(r *registry.Registry) (parts []uint64) {
	f := r.Freeze()
	add := func(b []byte) { parts = append(parts, crc64.Checksum(b, crc64.MakeTable(crc64.ECMA))) }
	add(fmt.Append(nil, f.Free))
	add(fsm.AppendFrozen(nil, codec.Newest, f))
	var b []byte
	for _, l := range f.Leases {
		b = fsm.AppendLeaseState(b, codec.Newest, l)
	}
	add(b)
	b = nil
	for _, rec := range f.Removals {
		b = fsm.AppendRemoval(b, codec.Newest, rec)
	}
	add(b)
	return parts
}

// view returns the newest view. The caller holds mu, or nothing else is running.
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
		_, err := s.entry(fsm.AppendWrite(nil, s.level(), s.now, 0), nil)
		return err
	}
	s.registry.Advance(s.now)
	s.history = append(s.history, stateEntry{now: s.now})
	return nil
}

// perform performs operations as one batch, and shows the result to readers and to what measures.
func (s *statesSite) perform(items ...fsm.Item) (results []registry.Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes := allocated()
	if s.consensus {
		results, err = s.performInLog(items)
	} else {
		results = s.performAlone(items)
	}
	if err != nil {
		return nil, err
	}
	if took := allocated() - bytes; took > statesBytes {
		return nil, fmt.Errorf("I12: Apply of %d operations took %d KiB of memory, at most %d are right", len(items), took>>10, statesBytes>>10)
	}
	v := s.view()
	s.counter.Count(v)
	return results, s.tokensRise()
}

// statesBytes bounds the memory that Apply of a batch allocates. As in fsm/cost_test.go it stands for time, which
// would depend on the machine.
const statesBytes = 12<<20 + 400*12<<10

// allocated returns how much memory was ever allocated.
func allocated() uint64 {
	sample := []runtimemetrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	runtimemetrics.Read(sample)
	return sample[0].Value.Uint64()
}

func (s *statesSite) performInLog(items []fsm.Item) ([]registry.Result, error) {
	s.sequence++
	id := fsm.BatchID{Node: "n" + s.name, Boot: s.start.index + 1, Seq: s.sequence}
	entry := func(items []fsm.Item) []byte {
		return fsm.AppendWrite(nil, s.level(), s.now, 0, fsm.AppendBatch(nil, s.level(), id, items))
	}
	applied, err := s.entry(entry(items), func(a fsm.Applied) []byte {
		var rest []fsm.Item
		for i, it := range items {
			var r kv.Result
			if a.Batches[0].KV != nil {
				r = a.Batches[0].KV[i]
			}
			outcome := outcomeOf(it, a.Batches[0].Registry[i], r)
			for _, e := range r.Errors[min(1, len(r.Errors)):] {
				s.seen(it, "failed: "+e.What)
			}
			if s.seen(it, outcome); !changesNothing(it, outcome) {
				rest = append(rest, it)
			}
		}
		if len(rest) == len(items) {
			return nil
		}
		return entry(rest)
	})
	if err != nil {
		return nil, err
	}
	if b := applied.Batches[0]; b.Refused || b.Late {
		return nil, fmt.Errorf("the batch was refused: %+v", b)
	}
	return applied.Batches[0].Registry, nil
}

func (s *statesSite) performAlone(items []fsm.Item) (results []registry.Result) {
	h := stateEntry{now: s.now, items: items}
	for _, it := range items {
		r := s.registry.Apply(s.now, s.term, it.Origin, it.Op)
		outcome := outcomeOf(it, r, kv.Result{})
		s.seen(it, outcome)
		results, h.refused = append(results, r), append(h.refused, changesNothing(it, outcome))
	}
	h.results = results
	s.history = append(s.history, h)
	return results
}

// tokensRise finds a token that went back, or that two holders have: I5.
func (s *statesSite) tokensRise() error {
	if !s.consensus {
		return nil
	}
	var errs []error
	for name, h := range s.held() {
		errs = append(errs, s.tokens.rise(name, h.Fence, h.Session))
	}
	return errors.Join(errs...)
}

// held returns the holders of keys and permits, with the names of these.
func (s *statesSite) held() iter.Seq2[string, kv.Holder] {
	return func(yield func(string, kv.Holder) bool) {
		v := s.machine.KV()
		for _, key := range statesKeys {
			if p, _ := v.Get(key); p != nil && p.Session != "" && !yield("key "+key, kv.Holder{Session: p.Session, Fence: p.Fence}) {
				return
			}
		}
		for _, name := range []string{"p", "q"} {
			for _, kind := range []kv.Kind{kv.Lock, kv.Semaphore} {
				m, _ := v.Permits(kind, name)
				for i := 0; m != nil && i < len(m.Holders); i++ {
					if !yield(fmt.Sprint("kind ", kind, " ", name), m.Holders[i]) {
						return
					}
				}
			}
		}
	}
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

// other returns the other site.
func (s *statesSite) other() *peer { return s.replica.present()[0] }

// send sends what changed since an index, as a feed does, and what the replies ask for. It returns the number of
// tasks.
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

// receive takes a message of a third party.
func (s *statesSite) receive(local bool, clock int64, ops ...registry.Op) error {
	m := rollcallpeer.Message{Head: rollcallpeer.Head{Datacenter: "dc9", Node: "x", Sender: "of x", Incarnation: 7, Clock: clock}}
	if local {
		m.Datacenter = "dc1"
	}
	for _, op := range ops {
		m.Items = append(m.Items, rollcallpeer.ItemOf(codec.Newest, op))
	}
	reply, err := s.replica.Receive(context.Background(), rollcallpeer.Encode(codec.Newest, &m))
	if err != nil {
		return err
	}
	var read rollcallpeer.Reply
	return rollcallpeer.Decode(reply, &read)
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
	if len(s.history)%3 > 0 { // it takes long
		return
	}
	all := prometheus.NewRegistry()
	all.MustRegister(expiry.PreservationGauges{Now: func() (*registry.View, int64) { return v, s.now.Lease }}, newMetrics(s.replica.present, s.replica.statusOf))
	if _, err := all.Gather(); err != nil {
		panic(err)
	}
}

// check returns what is wrong with a site after a sequence: panics that were contained; a replica that applied the
// same at once, without restarts, and differs; a state that differs when it is read back; a refused operation that
// changed something.
func (s *statesSite) check() error {
	if s.contained.Len() > 0 {
		return fmt.Errorf("a panic was contained: %.2000s", s.contained)
	}
	want, err := s.digest()
	if err != nil {
		return err
	}
	for _, replica := range []struct {
		name   string
		digest func() ([]uint64, error)
	}{{"I8: of a replica that applied the same", s.replay}, {"of the state when it is read back", s.reread}, {"without the operations that were refused", s.skipRefused}} {
		got, err := replica.digest()
		if err != nil {
			return fmt.Errorf("%s: %w", replica.name, err)
		}
		if got != nil && !slices.Equal(got, want) {
			return fmt.Errorf("digests %s: %x, want %x", replica.name, got, want)
		}
	}
	return nil
}

func (s *statesSite) digest() ([]uint64, error) {
	if s.consensus {
		return digestCP(s.machine), nil
	}
	return digestAP(s.registry), nil
}

// digestCP leaves out the remembered batches, which hold their results.
func digestCP(m *fsm.Machine) []uint64 {
	parts := m.Snapshot().Digest().Parts
	return slices.Delete(parts, slices.Index(fsm.DigestParts(), "batches"), slices.Index(fsm.DigestParts(), "batches")+1)
}

// replay applies the history anew, and compares the results.
func (s *statesSite) replay() ([]uint64, error) {
	if !s.consensus {
		r, err := s.again(func(at, item int, r registry.Result) error {
			if want := s.history[at].results[item]; r != want {
				return fmt.Errorf("the result is %+v, and was %+v", r, want)
			}
			return nil
		}, func(bool) bool { return true })
		if err != nil {
			return nil, err
		}
		return digestAP(r), nil
	}
	m, err := s.startAgain()
	if err != nil {
		return nil, err
	}
	entries := make([]fsm.Entry, len(s.history))
	for i, h := range s.history {
		entries[i] = h.Entry
	}
	applied, err := m.ApplyAll(entries)
	if err != nil {
		return nil, err
	}
	for i, h := range s.history {
		if !reflect.DeepEqual(applied[i].Batches, h.applied.Batches) {
			return nil, fmt.Errorf("entry %d: the results are %+v, and were %+v", h.Index, applied[i].Batches, h.applied.Batches)
		}
	}
	return digestCP(m), nil
}

// startAgain returns a machine in the state that the history began with.
func (s *statesSite) startAgain() (*fsm.Machine, error) {
	m := fsm.NewMachine()
	if len(s.start.snapshot) == 0 {
		return m, nil
	}
	return m, m.Restore(bytes.NewReader(s.start.snapshot))
}

// reread writes the state and reads it.
func (s *statesSite) reread() ([]uint64, error) {
	if len(s.history)%3 > 0 { // the steps that restart a site read it, too
		return nil, nil
	}
	if !s.consensus {
		r, err := thawAP(s.freeze())
		if err != nil {
			return nil, err
		}
		return digestAP(r), nil
	}
	m := fsm.NewMachine()
	if err := m.Restore(bytes.NewReader(s.freeze().snapshot)); err != nil {
		return nil, err
	}
	return digestCP(m), nil
}

// skipRefused applies the history without what was refused. It returns nil if nothing was.
func (s *statesSite) skipRefused() ([]uint64, error) {
	if !slices.ContainsFunc(s.history, func(h stateEntry) bool { return h.without != nil || slices.Contains(h.refused, true) }) {
		return nil, nil
	}
	if !s.consensus {
		r, err := s.again(func(int, int, registry.Result) error { return nil }, func(refused bool) bool { return !refused })
		if err != nil {
			return nil, err
		}
		return digestAP(r), nil
	}
	m, err := s.startAgain()
	if err != nil {
		return nil, err
	}
	entries := make([]fsm.Entry, len(s.history))
	for i, h := range s.history {
		if entries[i] = h.Entry; h.without != nil {
			entries[i].Data = h.without
		}
	}
	if _, err := m.ApplyAll(entries); err != nil {
		return nil, err
	}
	return digestCP(m), nil
}

// again performs the history of a site without consensus anew.
func (s *statesSite) again(check func(at, item int, r registry.Result) error, performs func(refused bool) bool) (*registry.Registry, error) {
	r, err := thawAP(s.start)
	if err != nil {
		return nil, err
	}
	for at, h := range s.history {
		if h.raised != 0 {
			r.SetLevel(h.raised)
		}
		if h.doubts {
			r.Doubt()
		}
		r.Advance(h.now)
		for i, it := range h.items {
			if !performs(h.refused[i]) {
				continue
			}
			if err := check(at, i, r.Apply(h.now, s.term, it.Origin, it.Op)); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// raise raises the level by one.
func (s *statesSite) raise() error {
	if s.level() == codec.Newest {
		return nil
	}
	if s.consensus {
		_, err := s.entry(fsm.AppendRaise(nil, s.level(), s.level()+1), nil)
		return err
	}
	s.writes++
	s.registry.SetLevel(s.writes)
	s.history = append(s.history, stateEntry{now: s.now, raised: s.writes})
	return nil
}
