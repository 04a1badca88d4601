package load

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

// watchedKeys are the instances whose every write carries a version, and the clients that write them.
type watchedKeys struct {
	load  *Load
	book  *truth.Book
	keys  []*watchedKey
	pools []*writerPool // by home node

	mu   sync.Mutex
	dice *rand.Rand
}

// watchedKey is one of them.
type watchedKey struct {
	described
	version atomic.Int64 // the newest drawn one
	writers []*writer    // one, or at least one for each node
	readers []*caller    // for writes in bursts: one for each node
}

// Watched keys are never renewed: their leases, in seconds, outlast any trial.
const (
	keyInterval = 1200
	keyDuration = 3600
)

// newKeys creates the watched keys of a load: those with one writer each, their homes the nodes in turn, and those
// with a writer at every node.
func newKeys(l *Load) *watchedKeys {
	k := &watchedKeys{load: l, book: bookOf(l), dice: rand.New(rand.NewPCG(l.Seed, diceKeys))}
	for range l.Nodes {
		k.pools = append(k.pools, new(writerPool))
	}
	for i := range l.Load.OwnKeys {
		k.add(fmt.Sprintf("own-%d", i), true, i%len(l.Nodes))
	}
	everywhere := make([]int, max(l.Load.KeyWriters, len(l.Nodes)))
	for n := range everywhere {
		everywhere[n] = n % len(l.Nodes)
	}
	for i := range l.Load.SharedKeys {
		k.add(fmt.Sprintf("shared-%d", i), false, everywhere...)
	}
	for _, p := range k.pools {
		p.open()
	}
	if k.bursts() {
		for _, key := range k.keys {
			key.readers = l.newCallers(len(l.Nodes))
		}
	}
	return k
}

func (k *watchedKeys) app() string { return k.load.Prefix + "-KEYS" }

// add adds a key with a writer at each of some homes.
func (k *watchedKeys) add(id string, own bool, homes ...int) {
	key := &watchedKey{described: described{
		app: k.app(), id: id, number: len(k.keys), interval: keyInterval, duration: keyDuration,
	}}
	k.keys = append(k.keys, key)
	for _, home := range homes {
		w := &writer{keys: k, key: key, home: home, exclusive: own, callers: k.load.newCallers(len(k.load.Nodes))}
		key.writers = append(key.writers, w)
		k.pools[home].add(w)
	}
}

// close closes the writers' connections.
func (k *watchedKeys) close() {
	for _, key := range k.keys {
		for _, w := range key.writers {
			for _, c := range w.callers {
				c.close()
			}
		}
		for _, c := range key.readers {
			c.close()
		}
	}
}

// Keys returns the ids of the watched keys, all of them in one application.
func (l *Load) Keys() (app string, ids []string) {
	for _, key := range l.keys.keys {
		ids = append(ids, key.id)
	}
	return l.keys.app(), ids
}

// register writes every watched key until a write of it was acknowledged.
func (k *watchedKeys) register(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(errandClients)
	for n, key := range k.keys {
		w := key.writers[n%len(key.writers)]
		g.Go(func() error { return w.first(ctx) })
	}
	return g.Wait()
}

// draw draws a number below n.
func (k *watchedKeys) draw(n int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dice.IntN(n)
}

// keyStreams returns the writes and reads of the watched keys.
func (l *Load) keyStreams() []*stream {
	if len(l.keys.keys) == 0 {
		return nil
	}
	writes := &stream{source: keyWrites{l.keys}, name: "writes", rate: l.Load.Writes}
	if n := len(l.keys.keys); l.keys.bursts() {
		writes = &stream{source: keyBursts{l.keys}, name: "writes", rate: l.Load.Writes, calls: l.Load.KeyWriters, fixed: n, cycle: n}
	}
	return []*stream{writes, {source: keyReads{l.keys}, name: "reads", rate: l.Load.Reads, bodies: true}}
}

// bursts reports whether all writers of a key write at the same moment.
func (k *watchedKeys) bursts() bool { return k.load.Load.KeyWriters > 0 }

// keyBursts makes all writers of a key write at the same moment, and a client of each node read it. The keys take
// turns.
type keyBursts struct{ keys *watchedKeys }

func (s keyBursts) send(ctx context.Context, c *caller, due time.Time) {
	key := s.keys.keys[c.turn]
	var calls sync.WaitGroup
	for _, w := range key.writers {
		calls.Go(func() { w.next(ctx, due) })
	}
	for _, reader := range key.readers {
		calls.Go(func() { s.keys.look(ctx, reader, key, time.Now()) })
	}
	calls.Wait()
}

// keyWrites writes the watched keys, each time by a writer with the caller's home.
type keyWrites struct{ keys *watchedKeys }

func (s keyWrites) send(ctx context.Context, c *caller, due time.Time) {
	p := s.keys.pools[c.home]
	if w := p.reserve(ctx, s.keys.draw); w != nil {
		w.next(ctx, due)
		p.release(w)
	}
}

// keyReads reads the watched keys.
type keyReads struct{ keys *watchedKeys }

func (s keyReads) send(ctx context.Context, c *caller, due time.Time) {
	s.keys.look(ctx, c, s.keys.keys[s.keys.draw(len(s.keys.keys))], due)
}

// look reads a key at the caller's home.
func (k *watchedKeys) look(ctx context.Context, c *caller, key *watchedKey, due time.Time) {
	called := time.Now()
	r := c.call(ctx, key.lookup(), true)
	past := pastCall{key: key.id, client: int32(c.number), node: int32(r.node), action: trial.Look, called: called, returned: time.Now()}
	if r.outcome == trial.Done {
		var ok bool
		if past.version, ok = seenVersion(r.body); !ok {
			r.outcome = trial.Refused // whatever the body is, it is not the instance
		}
	}
	past.outcome = r.outcome
	k.load.History.add(past)
	k.load.record(trial.ProbeRead, c.home, due, r, nil)
}

// writer is a client that writes one watched key, one call after the other. Only the goroutine that reserved it uses
// it.
type writer struct {
	keys      *watchedKeys
	key       *watchedKey
	home      int
	exclusive bool      // an own key, which no other client writes
	callers   []*caller // by target node
	removed   bool      // its last write was a cancel, or it has written nothing
}

// first registers the key, again and again until a registration is acknowledged.
func (w *writer) first(ctx context.Context) error {
	for {
		r := w.register(ctx, time.Now())
		if r.outcome == trial.Done {
			return nil
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return fmt.Errorf("watched key %s could not be registered (%s): %w", w.key.id, r.outcome, ctx.Err())
		}
	}
}

// afterCancel is how many registrations of an own key follow a cancel, on average, before the next one.
const afterCancel = 4

// next makes the writer's next write. About every fifth write of an own key is a cancel.
func (w *writer) next(ctx context.Context, due time.Time) {
	if w.exclusive && !w.removed && w.keys.draw(afterCancel) == 0 {
		w.cancel(ctx, due)
		return
	}
	w.register(ctx, due)
}

func (w *writer) register(ctx context.Context, due time.Time) callResult {
	version, book := w.key.version.Add(1), w.keys.book
	book.Registering(w.key.id, version, time.Now())
	r := w.write(ctx, w.key.registration(version), trial.Write, version)
	w.keys.load.record(trial.ProbeWrite, w.home, due, r, nil)
	recordWrite(book, w.key.id, version, r, book.Registering, book.Registered)
	w.removed = w.removed && !mayHaveHappened(r)
	return r
}

func (w *writer) cancel(ctx context.Context, due time.Time) {
	version, book := w.key.version.Add(1), w.keys.book
	book.Canceling(w.key.id, version, time.Now())
	r := w.write(ctx, w.key.cancel(), trial.Remove, version)
	w.keys.load.record(trial.ProbeWrite, w.home, due, r, nil)
	recordWrite(book, w.key.id, version, r, book.Canceling, book.Canceled)
	w.removed = mayHaveHappened(r)
}

func mayHaveHappened(r callResult) bool { return r.outcome.Answered() || r.outcome == trial.Unknown }

// write sends a write to the writer's node. The writer of an own key goes on to the next nodes that it can reach while
// no node accepts the request. Each of these calls is part of the history.
func (w *writer) write(ctx context.Context, request []byte, action trial.Action, version int64) (r callResult) {
	for _, node := range w.nodes() {
		called := time.Now()
		landed := w.keys.load.flight.begin(node)
		r = w.callers[node].call(ctx, request, true)
		landed()
		w.keys.load.History.add(pastCall{
			key: w.key.id, version: version, client: int32(w.callers[w.home].number), node: int32(node),
			action: action, outcome: r.outcome, called: called, returned: time.Now(),
		})
		if r.outcome != trial.Unreached {
			return r
		}
	}
	return r
}

// nodes returns the nodes that the writer may call, in order.
func (w *writer) nodes() []int {
	if !w.exclusive {
		return []int{w.home}
	}
	return w.keys.load.Reach.From(w.home, len(w.callers))
}

// writerPool is the writers whose home is one node. Safe for concurrent use once it is open.
type writerPool struct {
	idle chan struct{} // an element for each idle writer

	mu      sync.Mutex
	writers []*writer // the idle ones
}

// add adds a writer to a pool that is not open yet.
func (p *writerPool) add(w *writer) { p.writers = append(p.writers, w) }

// open ends the additions.
func (p *writerPool) open() {
	p.idle = make(chan struct{}, len(p.writers))
	for range p.writers {
		p.idle <- struct{}{}
	}
}

// reserve reserves one of the idle writers, drawn by draw. If none is idle it waits: the write that is due is sent
// late, as by any client that still waits for a response. It returns nil if the pool has no writers at all, or ctx
// ends.
func (p *writerPool) reserve(ctx context.Context, draw func(n int) int) *writer {
	if cap(p.idle) == 0 {
		return nil
	}
	select {
	case <-p.idle:
	case <-ctx.Done():
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, last := draw(len(p.writers)), len(p.writers)-1
	w := p.writers[n]
	p.writers[n] = p.writers[last]
	p.writers = p.writers[:last]
	return w
}

// release gives a writer back.
func (p *writerPool) release(w *writer) {
	p.mu.Lock()
	p.writers = append(p.writers, w)
	p.mu.Unlock()
	p.idle <- struct{}{}
}

// fetchStreams returns the fetches of the whole registry and of the delta.
func (l *Load) fetchStreams() []*stream {
	return []*stream{
		{source: l.fetches(trial.Fetch, registryPath, l.Load.Fetches), name: "fetches", rate: l.Load.Fetches},
		{source: l.fetches(trial.Delta, registryPath+"/delta", l.Load.Deltas), name: "deltas", rate: l.Load.Deltas},
	}
}

// fetches fetch a document as stock clients do: JSON, compressed, and with the consistency that the server gives to
// clients that ask for none.
type fetches struct {
	load    *Load
	what    trial.Operation
	request []byte
	clients []polling // by home
}

// polling is the clients of a home that fetch in turn, about once a second each.
type polling struct {
	turn  atomic.Int64
	felts []felt
}

// next returns the client whose turn it is.
func (p *polling) next() *felt { return &p.felts[int(p.turn.Add(1)-1)%len(p.felts)] }

func (l *Load) fetches(what trial.Operation, path string, rate float64) *fetches {
	f := &fetches{
		load: l, what: what, clients: make([]polling, len(l.Nodes)),
		request: []byte("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nAccept-Encoding: gzip\r\n\r\n"),
	}
	each := max(1, int(math.Ceil(rate/float64(len(l.Nodes)))))
	for home := range f.clients {
		f.clients[home].felts = make([]felt, each)
	}
	return f
}

func (f *fetches) send(ctx context.Context, c *caller, due time.Time) {
	client := f.clients[c.home].next()
	f.load.record(f.what, c.home, due, c.call(ctx, f.request, false), client)
}
