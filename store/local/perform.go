package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
)

// Apply implements registry.Service. With SyncAlways the reply waits for the disk; otherwise ctx is checked only
// before Run.
func (s *Store) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	return s.apply(ctx, call{origin: origin, server: access.ServerOf(ctx), whole: origin.Kind == registry.Client || len(ops) == 1}, ops)
}

// applyOwn performs what this node itself decides. An operation that panics does not prevent the others: leases are
// ended one by one then.
func (s *Store) applyOwn(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	results, err := s.Apply(ctx, registry.FromClient, ops...)
	if !errors.Is(err, registry.ErrPanicked) {
		return results, err
	}
	var single []registry.Op
	var places []int // positions in ops
	for i, op := range ops {
		evict, is := op.(registry.Evict)
		if !is {
			single, places = append(single, op), append(places, i)
		}
		for _, item := range evict.Items {
			single, places = append(single, registry.Evict{Epoch: evict.Epoch, Items: []registry.EvictItem{item}}), append(places, i)
		}
	}
	each, err := s.apply(ctx, call{origin: registry.FromClient}, single)
	results = make([]registry.Result, len(ops))
	for i, r := range each {
		r.Count += results[places[i]].Count
		results[places[i]] = r
	}
	return results, err
}

func (s *Store) apply(ctx context.Context, c call, ops []registry.Op) ([]registry.Result, error) {
	if err := s.admit(ctx, c.origin, ops); err != nil {
		return nil, fmt.Errorf("apply %d operations: %w", len(ops), err)
	}
	s.metrics.operations.Add(float64(len(ops)))
	results := make([]registry.Result, 0, len(ops))
	if c.origin.Kind == registry.Client {
		c.origin.Principal = access.SenderOf(ctx).Name
	}
	var saved *flush
	for left := ops; len(left) > 0; {
		n := min(len(left), applyStep)
		var err error
		if results, saved, err = s.perform(results, saved, c, left[:n]); err != nil {
			return nil, fmt.Errorf("apply %d operations: %w", len(ops), store.Partly(len(results), err))
		}
		left = left[n:]
	}
	if saved == nil {
		return results, nil
	}
	if err := saved.wait(ctx); err != nil {
		return nil, fmt.Errorf("apply %d operations: %w", len(ops), err)
	}
	return results, nil
}

// admit waits for the start of Run. It refuses a call if one of its operations is larger than a log would take, so
// that both modes accept the same, or cannot be written at this node's level.
func (s *Store) admit(ctx context.Context, origin registry.Origin, ops []registry.Op) error {
	for i, op := range ops {
		if _, small := op.(registry.Renew); small {
			continue
		}
		if size := store.SizeOf(fsm.Item{Origin: origin, Op: op}); size > store.MaxOpBytes {
			return fmt.Errorf("operation %d has %d bytes, at most %d are allowed: %w", i+1, size, store.MaxOpBytes, registry.ErrTooLarge)
		}
	}
	if now := s.level(); now != codec.Newest {
		for _, op := range ops {
			if needs := fsm.Need(fsm.Item{Origin: origin, Op: op}); needs > now {
				return &registry.LevelError{Text: codec.LevelRefusal(s.nodes(), needs)}
			}
		}
	}
	select {
	case <-s.started:
		return nil
	default:
	}
	select {
	case <-s.started:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", registry.ErrGivenUp, ctx.Err())
	}
}

// perform performs operations at one time, and appends their results. The last flush of a call contains all of its
// operations: flushes come in order.
func (s *Store) perform(results []registry.Result, saved *flush, c call, ops []registry.Op) ([]registry.Result, *flush, error) {
	c.now = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.serving {
		return results, saved, registry.ErrClosed
	}
	c.stamp = s.stamp(c.now)
	return s.performSafely(results, saved, c, ops)
}

// maxLost is how much time the lease clock may lose before renewals count as unconfirmed: the conflict rules tolerate
// that much.
const maxLost = 5 * time.Second

// stamp returns the time of an operation. If the node was paused, the renewals it knew before count as unconfirmed
// from now on. The caller holds mu.
func (s *Store) stamp(now time.Time) registry.Stamp {
	lease, _ := s.clock.Read(now)
	if lost := s.clock.Lost(); lost > s.doubted+maxLost {
		s.doubted = lost
		s.registry.Doubt()
		s.log.Warn("this node was paused, or its wall clock was set forward: until leases are renewed, it takes none to be younger than other nodes do", "lost", lost)
	}
	return registry.Stamp{Lease: lease, Wall: s.cfg.World.Wall(now).UnixMilli()}
}

// call says who sent operations, and when they are performed.
type call struct {
	origin registry.Origin
	server string // that sent them; empty if a client did
	whole  bool   // either all of them are performed, or none
	now    time.Time
	stamp  registry.Stamp
}

const (
	panicsTried   = 3           // how often an operation that panics is tried
	panicsPause   = time.Minute // before it is tried again
	refusedFor    = time.Hour   // how long a refusal is remembered after its last occurrence
	refusalsKnown = 1000        // at most
)

// Refusal is an operation that panicked here, and was refused.
type Refusal struct {
	Operation   string // as fsm.Describe names it
	Key         registry.Key
	Origin      registry.Origin
	Server      string // that sent it last; empty if a client did
	Cause       string // of the last panic
	First, Last time.Time
	Times       uint64 // how often it arrived, tried or not
	tried       int    // since the last pause
	pausedUntil time.Time
}

// performSafely performs operations and appends their results. If one panics, the registry, which then holds half of
// it, is rebuilt from the newest view, and a client's call fails as a whole. Another server's batch carries what many
// clients did: its operations are performed one by one, and only those that panic are refused.
func (s *Store) performSafely(results []registry.Result, saved *flush, c call, ops []registry.Op) ([]registry.Result, *flush, error) {
	at, cause := -1, (*panicked)(nil)
	if len(s.refusals) > 0 {
		at = slices.IndexFunc(ops, s.paused)
	}
	if at < 0 {
		var performed []registry.Result
		var effects effect
		if performed, effects, at, cause = s.attempt(results, c, ops); cause == nil {
			s.forgetPerformed(ops)
			if effects == renewing {
				return performed, saved, nil
			}
			s.publish()
			return performed, cmp.Or(s.markDirty(effects), saved), nil
		}
		if err := s.rebuild(cause); err != nil {
			return results, saved, err
		}
	}
	if c.whole {
		s.refuse(c, ops[min(at, len(ops)-1)], cause)
		return results, saved, registry.ErrPanicked
	}
	c.whole = true
	for i := range ops {
		var err error
		if results, saved, err = s.performSafely(results, saved, c, ops[i:i+1]); errors.Is(err, registry.ErrPanicked) {
			results = append(results, registry.Result{Outcome: registry.Panicked})
		} else if err != nil {
			return results, saved, err
		}
	}
	return results, saved, nil
}

// panicked says what an operation panicked with, and where.
type panicked struct {
	value any
	stack []byte
}

// attempt appends the results of operations to the earlier ones. If one panics, cause says with what, and at says
// which one. The view is part of an operation, because it shows what the operation made; if it panics, at is the
// number of operations.
func (s *Store) attempt(results []registry.Result, c call, ops []registry.Op) (_ []registry.Result, effects effect, at int, cause *panicked) {
	defer func() {
		if p := recover(); p != nil {
			cause = &panicked{p, debug.Stack()}
		}
	}()
	amends := s.registry.AmendedCount()
	for at = range ops {
		res := s.registry.Apply(c.stamp, s.id.Boot, c.origin, ops[at])
		if s.cfg.Test.Performed != nil {
			s.cfg.Test.Performed(fsm.Item{Origin: c.origin, Op: ops[at]})
		}
		effects = max(effects, effectOf(ops[at], res))
		results = append(results, res)
	}
	at = len(ops)
	if s.registry.AmendedCount() > amends {
		effects = durable // also for a renewal
	}
	if effects != renewing {
		s.registry.View()
	}
	return results, effects, at, nil
}

// rebuild replaces the registry, which holds half of an operation. If it cannot, the node ends, and nothing that is
// in memory reaches the disk.
func (s *Store) rebuild(cause *panicked) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
		if err != nil {
			s.serving, s.broken = false, true
			select {
			case s.fatal <- fmt.Errorf("an operation panicked (%v), and the registry could not be made anew from its newest view: %w", cause.value, err):
			default:
			}
			err = fmt.Errorf("%w: %w", registry.ErrClosed, err)
		}
	}()
	rebuilt, err := s.registry.Rebuild(s.view.Load())
	if err != nil {
		return err
	}
	s.registry, s.rewrite, s.dirty = rebuilt, true, true
	return nil
}

// paused reports whether an operation panicked too often to be tried now, because each panic costs a rebuild. The
// caller holds mu.
func (s *Store) paused(op registry.Op) bool {
	f := s.refusals[describe(op)]
	return f != nil && time.Now().Before(f.pausedUntil)
}

func describe(op registry.Op) string { return fsm.Describe(fsm.Item{Op: op}) }

// refuse remembers an operation that panicked, or that was not tried (cause is nil), and logs the first time.
func (s *Store) refuse(c call, op registry.Op, cause *panicked) {
	what := describe(op)
	f := s.refusals[what]
	if f == nil {
		s.forgetRefusals(c.now)
		f = &Refusal{Operation: what, First: c.now}
		f.Key, _ = registry.KeyOf(op)
		s.refusals[what] = f
		s.log.Error("an operation panicked, which is a defect, and was refused: nothing of it has an effect", "operation", what, "app", f.Key.App, "id", f.Key.ID,
			"from", cmp.Or(c.server, c.origin.DC, c.origin.Principal, "a client"), "panic", cause.value, "stack", string(cause.stack))
	}
	f.Origin, f.Server, f.Last, f.Times = c.origin, c.server, c.now, f.Times+1
	if cause == nil {
		return
	}
	s.metrics.panics.Inc()
	f.Cause = fmt.Sprint(cause.value)
	if f.tried++; f.tried >= panicsTried {
		f.tried, f.pausedUntil = panicsTried-1, c.now.Add(panicsPause)
	}
}

// forgetRefusals forgets what was last refused long ago, and makes room for one more.
func (s *Store) forgetRefusals(now time.Time) {
	maps.DeleteFunc(s.refusals, func(_ string, f *Refusal) bool { return now.Sub(f.Last) > refusedFor })
	if len(s.refusals) >= refusalsKnown {
		oldest := slices.MinFunc(slices.Collect(maps.Values(s.refusals)), func(a, b *Refusal) int { return a.Last.Compare(b.Last) })
		delete(s.refusals, oldest.Operation)
	}
}

// forgetPerformed forgets refusals of operations that were now performed.
func (s *Store) forgetPerformed(ops []registry.Op) {
	if len(s.refusals) == 0 {
		return
	}
	for _, op := range ops {
		if f := s.refusals[describe(op)]; f != nil {
			delete(s.refusals, f.Operation)
			s.log.Info("an operation that had panicked was performed", "operation", f.Operation, "refused", f.Times)
		}
	}
}

// Refusals returns the operations that panicked here within the last hour and were not performed since, sorted by
// name.
func (s *Store) Refusals() []Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetRefusals(time.Now())
	all := make([]Refusal, 0, len(s.refusals))
	for _, what := range slices.Sorted(maps.Keys(s.refusals)) {
		all = append(all, *s.refusals[what])
	}
	return all
}
