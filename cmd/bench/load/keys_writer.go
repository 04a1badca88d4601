package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// writer is a client that writes one watched key, one call after the other. Who has taken it out of its pool uses
// it.
type writer struct {
	keys    *watchedKeys
	key     *watchedKey
	home    int
	own     bool      // nobody else writes the key
	callers []*caller // by the node that they call
	removed bool      // its last write was a cancel, or nothing
}

// first registers the key, again and again until that was acknowledged.
func (w *writer) first(ctx context.Context) error {
	for {
		a := w.register(ctx, time.Now())
		if a.outcome == trial.Done {
			return nil
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return fmt.Errorf("watched key %s could not be registered (%s): %w", w.key.id, a.outcome, ctx.Err())
		}
	}
}

// afterCancel is how many registrations of an own key follow a cancel, on average, before the next one.
const afterCancel = 4

// next makes the writer's next write. Of an own key every fifth or so is a cancel.
func (w *writer) next(ctx context.Context, due time.Time) {
	if w.own && !w.removed && w.keys.draw(afterCancel) == 0 {
		w.cancel(ctx, due)
		return
	}
	w.register(ctx, due)
}

func (w *writer) register(ctx context.Context, due time.Time) answer {
	version, book := w.key.version.Add(1), w.keys.book
	book.Registering(w.key.id, version, time.Now())
	a := w.write(ctx, w.key.registration(version), trial.Write, version)
	w.keys.load.record(trial.Register, w.home, due, a)
	tell(book, w.key.id, version, a, book.Registering, book.Registered)
	w.removed = w.removed && !mayHaveHappened(a)
	return a
}

func (w *writer) cancel(ctx context.Context, due time.Time) {
	version, book := w.key.version.Add(1), w.keys.book
	book.Canceling(w.key.id, version, time.Now())
	a := w.write(ctx, w.key.cancel(), trial.Remove, version)
	w.keys.load.record(trial.Cancel, w.home, due, a)
	tell(book, w.key.id, version, a, book.Canceling, book.Canceled)
	w.removed = mayHaveHappened(a)
}

func mayHaveHappened(a answer) bool { return a.outcome.Answered() || a.outcome == trial.Unknown }

// write sends a write to the writer's node. The writer of an own key goes on to the next nodes that it can
// reach while nobody takes it. Each of these calls is part of the history.
func (w *writer) write(ctx context.Context, request []byte, action trial.Action, version int64) (a answer) {
	for _, node := range w.nodes() {
		called := time.Now()
		a = w.callers[node].call(ctx, request, true)
		w.keys.load.History.add(pastCall{
			key: w.key.id, version: version, client: int32(w.callers[w.home].number), node: int32(node),
			action: action, outcome: a.outcome, called: called, returned: time.Now(),
		})
		if a.outcome != trial.Unreached {
			return a
		}
	}
	return a
}

// nodes are those that the writer may ask, in this order.
func (w *writer) nodes() []int {
	if !w.own {
		return []int{w.home}
	}
	return w.keys.load.Reach.From(w.home, len(w.callers))
}

// writerPool is the writers whose home is one node. Safe for concurrent use once it is open.
type writerPool struct {
	idle chan struct{} // an element for each writer that is not taken

	mu      sync.Mutex
	writers []*writer // that are not taken
}

// add adds a writer to a pool that is not open yet.
func (p *writerPool) add(w *writer) { p.writers = append(p.writers, w) }

// open ends the adding.
func (p *writerPool) open() {
	p.idle = make(chan struct{}, len(p.writers))
	for range p.writers {
		p.idle <- struct{}{}
	}
}

// take takes one of the idle writers, drawn by draw. If none is, it waits: what was due is sent late, as by any
// client that still waits for an answer. It is nil if the pool has no writers at all, or ctx ends.
func (p *writerPool) take(ctx context.Context, draw func(n int) int) *writer {
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

// put gives a writer back.
func (p *writerPool) put(w *writer) {
	p.mu.Lock()
	p.writers = append(p.writers, w)
	p.mu.Unlock()
	p.idle <- struct{}{}
}
