package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

// watchedKeys is the instances whose every write carries a version, and the clients that write them.
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
	version atomic.Int64 // the newest that was drawn
	writers []*writer    // one, or one for each node
}

// Watched keys are never renewed: their leases, in seconds, outlast any trial.
const (
	keyInterval = 1200
	keyDuration = 3600
)

// newKeys lays the watched keys of a load out: those with one writer each, their homes the nodes in turn, and
// those with a writer at every node.
func newKeys(l *Load) *watchedKeys {
	k := &watchedKeys{load: l, book: bookOf(l), dice: rand.New(rand.NewPCG(l.Seed, diceKeys))}
	for range l.Nodes {
		k.pools = append(k.pools, new(writerPool))
	}
	for i := range l.Load.OwnKeys {
		k.add(fmt.Sprintf("own-%d", i), true, i%len(l.Nodes))
	}
	everywhere := make([]int, len(l.Nodes))
	for n := range everywhere {
		everywhere[n] = n
	}
	for i := range l.Load.SharedKeys {
		k.add(fmt.Sprintf("shared-%d", i), false, everywhere...)
	}
	for _, p := range k.pools {
		p.open()
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
		w := &writer{keys: k, key: key, home: home, own: own, callers: k.load.newCallers(len(k.load.Nodes))}
		key.writers = append(key.writers, w)
		k.pools[home].add(w)
	}
}

// close gives the writers' connections back.
func (k *watchedKeys) close() {
	for _, key := range k.keys {
		for _, w := range key.writers {
			for _, c := range w.callers {
				c.close()
			}
		}
	}
}

// Keys are the ids of the watched keys, all of them in one application.
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

// keyStreams are the writes and reads of the watched keys.
func (l *Load) keyStreams() []*stream {
	if len(l.keys.keys) == 0 {
		return nil
	}
	return []*stream{
		{source: keyWrites{l.keys}, name: "writes", rate: l.Load.Writes},
		{source: keyReads{l.keys}, name: "reads", rate: l.Load.Reads, bodies: true},
	}
}

// keyWrites writes the watched keys, each time by a writer whose home is the caller's.
type keyWrites struct{ keys *watchedKeys }

func (keyWrites) operation() trial.Operation { return trial.Register }

func (s keyWrites) send(ctx context.Context, c *caller, due time.Time) {
	p := s.keys.pools[c.home]
	if w := p.take(ctx, s.keys.draw); w != nil {
		w.next(ctx, due)
		p.put(w)
	}
}

// keyReads reads the watched keys.
type keyReads struct{ keys *watchedKeys }

func (keyReads) operation() trial.Operation { return trial.Read }

func (s keyReads) send(ctx context.Context, c *caller, due time.Time) {
	key := s.keys.keys[s.keys.draw(len(s.keys.keys))]
	called := time.Now()
	a := c.call(ctx, key.look(), true)
	past := pastCall{key: key.id, client: int32(c.number), node: int32(a.node), action: trial.Look, called: called, returned: time.Now()}
	if a.outcome == trial.Done {
		var ok bool
		if past.version, ok = seenVersion(a.body); !ok {
			a.outcome = trial.Refused // whatever it is, it is not the instance
		}
	}
	past.outcome = a.outcome
	s.keys.load.History.add(past)
	s.keys.load.record(trial.Read, c.home, due, a)
}
