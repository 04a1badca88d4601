package local

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
)

// flush is one write to the disk, and its outcome, for all callers that wait for it.
type flush struct {
	done chan struct{}
	err  error // set before done is closed
}

func newFlush() *flush { return &flush{done: make(chan struct{})} }

func (f *flush) finish(err error) {
	f.err = err
	close(f.done)
}

// wait waits for a flush. Its operations were performed: if the flush fails, or the wait ends early, it is open
// whether they outlast the node.
func (f *flush) wait(ctx context.Context) error {
	select {
	case <-f.done:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, ctx.Err())
	}
	if f.err != nil {
		return fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, f.err)
	}
	return nil
}

// markDirty records that the state is ahead of the disk, and returns the flush that the caller must wait for, if any.
// The caller holds mu.
func (s *Store) markDirty(e effect) *flush {
	s.dirty = true
	waits := e == durable && s.cfg.Sync == store.SyncAlways
	if waits || s.view.Load().Index() >= s.flushed+reserved/2 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	if waits {
		return s.next
	}
	return nil
}

// runSaving writes changes to the disk until ctx ends: at its interval, and at once if a caller waits or the reserved
// indexes are half used. One flush runs at a time; what arrives meanwhile shares the next.
func (s *Store) runSaving(ctx context.Context) {
	var due <-chan time.Time // never
	if s.cfg.Sync != store.SyncNone {
		tick := time.NewTicker(s.cfg.SyncInterval)
		defer tick.Stop()
		due = tick.C
	}
	for {
		select {
		case <-due:
		case <-s.wake:
		case <-s.asked:
			continue
		case <-ctx.Done():
			return
		}
		if err := s.save(false); err != nil {
			s.fatal <- err
			return
		}
	}
}

// Alive returns true once the loop that writes to the disk has heard a question and no operation is in progress, and
// false when ctx has ended.
func (s *Store) Alive(ctx context.Context) bool {
	select {
	case s.asked <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return true
}

// save writes what changed since the last time, if anything did. With last, it also writes the renewals, whatever
// their age.
func (s *Store) save(last bool) error {
	s.mu.Lock()
	if !s.dirty && !last || s.broken {
		s.mu.Unlock()
		return nil
	}
	f, what := s.next, capture(s.registry, s.flushed, s.level(), s.rewrite)
	s.next, s.dirty, s.rewrite, s.written = newFlush(), false, false, what.frozen.Clock.Lease
	s.mu.Unlock()

	switch {
	case last:
		s.addRenewals(&what, math.MinInt64)
	case what.frozen.Clock.Lease-s.disk.renewedTo >= renewalsAge.Milliseconds():
		s.addRenewals(&what, s.disk.renewedTo-renewalsAge.Milliseconds())
	}
	began := time.Now()
	err := s.disk.write(what)
	s.metrics.flushes.Observe(time.Since(began).Seconds())
	s.metrics.written.Add(float64(len(what.frozen.Leases) + len(what.frozen.Removals)))
	if err == nil {
		s.mu.Lock()
		s.flushed = what.frozen.Index
		s.mu.Unlock()
	}
	f.finish(err) // a caller that waited may read what is on disk
	return err
}

// addRenewals adds renewals of unchanged leases, from a moment of the lease clock (ms) on, a few at a time: no caller
// must wait until all have been read. Other nodes report renewals late: those that were due the last time and arrived
// afterwards are picked up this time.
func (s *Store) addRenewals(what *saved, since int64) {
	what.renewed = true
	for leases := range slices.Chunk(what.renewedSince(since), applyStep) {
		s.mu.Lock()
		for _, l := range leases {
			what.addRenewal(s.registry.StateOf(l.Handle))
		}
		s.mu.Unlock()
	}
}

// applyStep is how many operations are performed at a stretch: a large batch of another node must not keep the
// clients waiting.
const applyStep = 256

// effect is what an operation means for readers of the state.
type effect uint8

const (
	renewing   effect = iota // nothing but the time of a renewal, which is live
	repeatable               // something new that no reader relies on: it comes again
	durable                  // a result that must be as true after a crash
)

func effectOf(op registry.Op, res registry.Result) effect {
	if res.Index != 0 {
		return durable
	}
	switch op.(type) {
	case registry.Renew:
		return renewing
	case registry.Contact, registry.AckPeer:
		return repeatable
	}
	return durable
}
