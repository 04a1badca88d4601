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
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// watchedKeys are the instances whose every write carries a version, and the clients that write them.
type watchedKeys struct {
	load *Load
	keys []*watchedKey
	idle []chan *writer // by home node: writers that write nothing now; nil for a home without writers

	mu   sync.Mutex
	dice *rand.Rand
}

// watchedKey is one of them.
type watchedKey struct {
	described
	version atomic.Int64 // the newest drawn one
	writers []*writer    // one, or at least one for each node
	readers []*client    // for writes in bursts: one for each node
}

// writer is a client that writes one watched key, one call after the other. Only the goroutine that took it from idle
// uses it, or the burst of its key.
type writer struct {
	*client
	keys      *watchedKeys
	key       *watchedKey
	exclusive bool // an own key, which no other client writes
	removed   bool // its last write was a cancel
}

// newKeys creates the watched keys of a load: those with one writer each, their homes the nodes in turn, and those
// with a writer at every node.
func newKeys(l *Load) *watchedKeys {
	k := &watchedKeys{load: l, idle: make([]chan *writer, len(l.Nodes)), dice: rand.New(rand.NewPCG(l.Seed, diceKeys))}
	for i := range l.Load.OwnKeys {
		k.add(fmt.Sprintf("own-%d", i), true, i, 1)
	}
	for i := range l.Load.SharedKeys {
		k.add(fmt.Sprintf("shared-%d", i), false, 0, k.sharing())
	}
	return k
}

// sharing returns how many writers a shared key has.
func (k *watchedKeys) sharing() int { return max(k.load.Load.KeyWriters, len(k.load.Nodes)) }

func (k *watchedKeys) app() string { return k.load.Prefix + "-KEYS" }

// add adds a key with a number of writers, whose homes are the nodes in turn from the first one on.
func (k *watchedKeys) add(id string, own bool, first, writers int) {
	l := k.load
	key := &watchedKey{described: described{
		app: k.app(), id: id, number: len(k.keys), interval: endlessInterval, duration: endlessDuration,
	}}
	k.keys = append(k.keys, key)
	for n := range writers {
		w := &writer{client: l.newClient((first + n) % len(l.Nodes)), keys: k, key: key, exclusive: own}
		key.writers = append(key.writers, w)
		if k.idle[w.home] == nil {
			k.idle[w.home] = make(chan *writer, l.Load.OwnKeys+l.Load.SharedKeys*k.sharing())
		}
		k.idle[w.home] <- w
	}
	if l.Load.KeyWriters > 0 { // they write at the same moment
		for home := range l.Nodes {
			key.readers = append(key.readers, l.newClient(home))
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
	g.SetLimit(scriptClients)
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

// keyStreams returns the writes and reads of the watched keys. A home without writers writes nothing in its turn.
func (l *Load) keyStreams() []*stream {
	k := l.keys
	if len(k.keys) == 0 {
		return nil
	}
	read := func(ctx context.Context, c *client, due time.Time) { k.look(ctx, c, k.keys[k.draw(len(k.keys))], due) }
	reads := &stream{name: "reads", rate: l.Load.Reads, turns: l.atNodes(l.Load.Reads, read)}
	writes := &stream{name: "writes", rate: l.Load.Writes}
	if l.Load.KeyWriters > 0 {
		writes.calls, writes.turns = l.Load.KeyWriters, k.burstTurns()
		return []*stream{writes, reads}
	}
	for _, idle := range k.idle {
		writes.turns = append(writes.turns, func(ctx context.Context, due time.Time) {
			if idle != nil {
				k.write(ctx, idle, due)
			}
		})
	}
	return []*stream{writes, reads}
}

// write lets a writer make its next write, drawn from the idle ones of its home. If none is idle, the write is sent
// late, as by any client that still waits for a response.
func (k *watchedKeys) write(ctx context.Context, idle chan *writer, due time.Time) {
	for range k.draw(max(1, len(idle))) {
		idle <- <-idle
	}
	w := <-idle
	k.load.pace.add(due, w.idle)
	w.next(ctx, due)
	w.idle = time.Now()
	idle <- w
}

// burstTurns returns a turn for each key, in which all its writers write at the same moment, and a client of each node
// reads it.
func (k *watchedKeys) burstTurns() (turns []call) {
	pools := k.load.newPools(len(k.keys), len(k.keys))
	for n, key := range k.keys {
		burst := func(ctx context.Context, _ *client, due time.Time) { k.burst(ctx, key, due) }
		turns = append(turns, k.load.by(pools[n], burst))
	}
	return turns
}

func (k *watchedKeys) burst(ctx context.Context, key *watchedKey, due time.Time) {
	var calls sync.WaitGroup
	for _, w := range key.writers {
		calls.Go(func() { w.next(ctx, due) })
	}
	for _, reader := range key.readers {
		calls.Go(func() { k.look(ctx, reader, key, time.Now()) })
	}
	calls.Wait()
}

// look reads a key at the client's home.
func (k *watchedKeys) look(ctx context.Context, c *client, key *watchedKey, due time.Time) {
	c.bodies = true
	called := time.Now()
	r := c.call(ctx, key.lookup(), c.home)
	past := trial.Call{Key: key.id, Client: c.number, Node: r.node, Action: trial.Look}
	if r.outcome == trial.Done {
		var ok bool
		if past.Version, ok = seenVersion(r.body); !ok {
			r.outcome = trial.Refused // whatever the body is, it is not the instance
		}
	}
	past.Outcome = r.outcome
	k.load.History.add(past, called)
	k.load.record(trial.ProbeRead, c.home, due, r, nil)
}

// first registers the key, again and again until a registration is acknowledged.
func (w *writer) first(ctx context.Context) error {
	for {
		r := w.write(ctx, trial.Write, time.Now())
		if r.outcome == trial.Done {
			return nil
		}
		if !wait.For(ctx, retryPause) {
			return fmt.Errorf("watched key %s could not be registered (%s): %w", w.key.id, r.outcome, ctx.Err())
		}
	}
}

// afterCancel is how many registrations of an own key follow a cancel, on average, before the next one.
const afterCancel = 4

// next makes the writer's next write. About every fifth write of an own key is a cancel.
func (w *writer) next(ctx context.Context, due time.Time) {
	action := trial.Write
	if w.exclusive && !w.removed && w.keys.draw(afterCancel) == 0 {
		action = trial.Remove
	}
	w.write(ctx, action, due)
}

func (w *writer) write(ctx context.Context, action trial.Action, due time.Time) callResult {
	version := w.key.version.Add(1)
	r := w.load.write(w.key.described, version, action, func(request []byte) callResult {
		return w.send(ctx, request, action, version)
	})
	w.load.record(trial.ProbeWrite, w.home, due, r, nil)
	if r.outcome.Answered() || r.outcome == trial.Unknown { // it may have happened
		w.removed = action == trial.Remove
	}
	return r
}

// send sends a write to the writer's node. The writer of an own key goes on to the next nodes that it can reach while
// no node accepts the request. Each of these calls is part of the history.
func (w *writer) send(ctx context.Context, request []byte, action trial.Action, version int64) (r callResult) {
	nodes := []int{w.home}
	if w.exclusive {
		nodes = w.load.Reach.From(w.home, len(w.load.Nodes))
	}
	for _, node := range nodes {
		called := time.Now()
		landed := w.load.flight.begin(node)
		r = w.call(ctx, request, node)
		landed()
		w.load.History.add(trial.Call{
			Key: w.key.id, Version: version, Client: w.number, Node: node, Action: action, Outcome: r.outcome,
		}, called)
		if r.outcome != trial.Unreached {
			break
		}
	}
	return r
}

// flight tracks how many writes of watched keys are on their way to each node. Safe for concurrent use.
type flight struct {
	mu     sync.Mutex
	counts []int      // by node
	aimed  []chan int // by node: gets the count when the next write begins; nil if nobody waits
}

// begin records that a write goes to a node. The function it returns records its landing.
func (f *flight) begin(node int) (landed func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[node]++
	if f.aimed[node] != nil {
		f.aimed[node] <- f.counts[node] // never blocks: it has room
		f.aimed[node] = nil
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.counts[node]--
	}
}

// AwaitWrite waits until a write of a watched key goes to a node, and returns how many are on their way to it then, or
// 0 if ctx ended first.
func (l *Load) AwaitWrite(ctx context.Context, node int) int {
	begun := make(chan int, 1)
	l.flight.mu.Lock()
	l.flight.aimed[node] = begun
	l.flight.mu.Unlock()
	select {
	case writing := <-begun:
		return writing
	case <-ctx.Done():
		return 0
	}
}

// poller is a client that fetches a document about once a second.
type poller struct {
	felt
	what trial.Operation
	home int
}

// fetchStreams returns the fetches of the whole registry and of the delta.
func (l *Load) fetchStreams() []*stream {
	return []*stream{
		{name: "fetches", rate: l.Load.Fetches, turns: l.fetches(trial.Fetch, registryPath, l.Load.Fetches)},
		{name: "deltas", rate: l.Load.Deltas, turns: l.fetches(trial.Delta, registryPath+"/delta", l.Load.Deltas)},
	}
}

// fetches returns the turns of the pollers that fetch a document as stock clients do: JSON, compressed, and with the
// consistency that the server gives to clients that ask for none.
func (l *Load) fetches(what trial.Operation, path string, rate float64) (turns []call) {
	request := []byte("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n" +
		"Accept-Encoding: gzip\r\n\r\n")
	pools := l.newPools(len(l.Nodes), l.clientsFor(rate))
	for range max(1, int(math.Ceil(rate/float64(len(l.Nodes))))) {
		for home, pool := range pools {
			p := &poller{what: what, home: home}
			l.pollers = append(l.pollers, p)
			turns = append(turns, l.by(pool, func(ctx context.Context, c *client, due time.Time) {
				l.record(what, home, due, c.call(ctx, request), &p.felt)
			}))
		}
	}
	return turns
}
