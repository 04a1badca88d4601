package membership

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/store"
)

// DigestInterval is the time between two entries at which digests are made, by the wall clock in the entries.
const DigestInterval = time.Minute

// DigestsDue reports whether digests are made at an entry: at the first one of its interval. before and after are the
// state's wall clock (ms) without the entry and with it, and so the same on every node.
func DigestsDue(before, after int64) bool {
	return before/DigestInterval.Milliseconds() != after/DigestInterval.Milliseconds()
}

// digestsKept is how many digests a node keeps, for nodes that make theirs later.
const digestsKept = 4

// Digest is the digest of a node's state at an entry.
type Digest struct {
	fsm.Digest
	Age time.Duration // since the entry was applied
}

// Digests makes and keeps a node's own digests. Use NewDigests.
type Digests struct {
	panics *store.Panics
	frozen chan frozenState // to Run
	busy   atomic.Bool      // a state was frozen whose digest is not made yet

	mu     sync.Mutex   // guards the fields below
	newest []madeDigest // oldest first
}

type frozenState struct {
	state *fsm.Snapshot
	at    time.Time
}

type madeDigest struct {
	fsm.Digest
	at time.Time
}

// NewDigests returns Digests without a digest yet.
func NewDigests(panics *store.Panics) *Digests {
	return &Digests{panics: panics, frozen: make(chan frozenState, 1)}
}

// Run makes digests until ctx ends, one at a time.
func (d *Digests) Run(ctx context.Context) {
	for {
		select {
		case f := <-d.frozen:
			d.panics.Contain(store.MeasuredReplicas, func() { d.add(madeDigest{f.state.Digest(), f.at}) })
			d.busy.Store(false)
		case <-ctx.Done():
			return
		}
	}
}

// Make starts a digest of what freeze returns, or does nothing while another one is being made.
func (d *Digests) Make(freeze func() *fsm.Snapshot) {
	if d.busy.Swap(true) {
		return
	}
	if !d.panics.Contain(store.MeasuredReplicas, func() { d.frozen <- frozenState{freeze(), time.Now()} }) {
		d.busy.Store(false)
	}
}

func (d *Digests) add(m madeDigest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.newest = append(d.newest, m)
	if len(d.newest) > digestsKept {
		d.newest = slices.Delete(d.newest, 0, 1)
	}
}

// Newest returns the newest digests, oldest first.
func (d *Digests) Newest() []Digest {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Digest, len(d.newest))
	for i, m := range d.newest {
		all[i] = Digest{m.Digest, time.Since(m.at)}
	}
	return all
}
