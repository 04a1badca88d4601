package reads

import (
	"sync"
	"time"
)

// maxPending bounds the proofs whose entries this node has not applied yet. Further ones are
// dropped, which makes the state look older than it is, never younger.
const maxPending = 128

// freshness knows how old this node's state can be. Raft's LastContact would not do: heartbeats bypass a disk that is
// slow or hangs, and entries that wait for it.
type freshness struct {
	mu      sync.Mutex
	since   time.Time // start of the newest proof whose index is applied; zero if there is none
	pending []proof   // proofs whose index is not applied yet, oldest first
}

// proof says that whatever was acknowledged before a time is in the log at or before an index.
type proof struct {
	at    time.Time
	index uint64
}

// addProof keeps a proof until its index is applied.
func (f *freshness) addProof(at time.Time, index, applied uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) < maxPending {
		f.pending = append(f.pending, proof{at: at, index: index})
	}
	f.advance(applied)
}

// advance moves since to the start of the newest proof whose entries are all applied. Proofs from several leaderships
// need not be in the order of their times. The caller holds mu.
func (f *freshness) advance(applied uint64) {
	rest := f.pending[:0]
	for _, p := range f.pending {
		switch {
		case p.index > applied:
			rest = append(rest, p)
		case p.at.After(f.since):
			f.since = p.at
		}
	}
	f.pending = rest
}

// newest returns the start of the newest proof whose entries are all applied, or zero.
func (f *freshness) newest(applied uint64) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance(applied)
	return f.since
}

// elapsed returns the time between two readings of this node's clock, by its monotonic or its wall clock, whichever
// is longer: the monotonic one stands still while the machine sleeps, and the wall clock may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(0, to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
