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
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
)

// Apply implements registry.Service. With SyncAlways the answer waits for the disk; otherwise ctx is
// looked at before Run only.
func (s *Store) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	return s.apply(ctx, call{origin: origin, server: access.ServerOf(ctx), whole: origin.Kind == registry.Client || len(ops) == 1}, ops)
}

// applyOwn performs what this node decides by itself. What panics keeps nothing else from being performed: leases are
// ended one by one then.
func (s *Store) applyOwn(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	results, err := s.Apply(ctx, registry.FromClient, ops...)
	if !errors.Is(err, registry.ErrPanicked) {
		return results, err
	}
	var single []registry.Op
	var places []int // in ops
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

// admit waits for the beginning of Run, and refuses a call of which an operation is larger than it may
// be in a log, so that both modes take the same.
func (s *Store) admit(ctx context.Context, origin registry.Origin, ops []registry.Op) error {
	for i, op := range ops {
		if _, small := op.(registry.Renew); small {
			continue
		}
		if size := store.SizeOf(fsm.Item{Origin: origin, Op: op}); size > store.MaxOpBytes {
			return fmt.Errorf("operation %d has %d bytes, at most %d are allowed: %w", i+1, size, store.MaxOpBytes, registry.ErrTooLarge)
		}
	}
	if err := s.refuseAbove(origin, ops); err != nil {
		return err
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
		return ctx.Err()
	}
}

// perform performs operations and appends their results. Of a call's operations the last flush contains
// all: flushes come in order.
func (s *Store) perform(results []registry.Result, saved *flush, c call, ops []registry.Op) ([]registry.Result, *flush, error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.serving {
		return results, saved, registry.ErrClosed
	}
	stamp := s.stamp(now)
	results, effects, err := s.performSafely(results, now, stamp, c, ops)
	if err != nil || effects == renewing {
		return results, saved, err
	}
	s.publish()
	if f := s.markDirty(effects); f != nil {
		saved = f
	}
	return results, saved, nil
}

// maxLost is what the lease clock may lose before renewals become hearsay: the conflict rules bear as much.
const maxLost = 5 * time.Second

// stamp is the time of an operation. If the node was paused, what it knew before is hearsay from now on. The
// caller holds mu.
func (s *Store) stamp(now time.Time) registry.Stamp {
	lease, _ := s.clock.Read(now)
	if lost := s.clock.Lost(); lost > s.doubted+maxLost {
		s.doubted = lost
		s.registry.Doubt()
		s.log.Warn("this node stood still, or its wall clock was set forward: until they are renewed, it takes no lease for younger than other nodes do", "lost", lost)
	}
	return registry.Stamp{Lease: lease, Wall: now.UnixMilli()}
}

// call is who sent the operations of a call.
type call struct {
	origin registry.Origin
	server string // that sent them; "": a client did
	whole  bool   // all of its operations are performed, or none
}

const (
	panicsTried   = 3           // how often an operation is tried that panics
	panicsPause   = time.Minute // after which it is tried again
	refusedFor    = time.Hour   // how long a refusal is remembered after its last time
	refusalsKnown = 1000        // at most
)

// Refusal is an operation that panicked here, and was refused.
type Refusal struct {
	Operation   string // as fsm.Describe names it
	Key         registry.Key
	Origin      registry.Origin
	Server      string // that sent it last; "": a client did
	Cause       string // what it panicked with last
	First, Last time.Time
	Times       uint64 // that it came, tried or not
	tried       int    // since the last pause
	pausedUntil time.Time
}

// performSafely performs operations and appends their results. If one panics, the registry, which has half of it, is
// thrown away and made anew from the newest view. Then a client's call fails as a whole. Of another server's
// operations those that do not panic are performed: its batch says what many clients did.
func (s *Store) performSafely(before []registry.Result, now time.Time, stamp registry.Stamp, c call, ops []registry.Op) ([]registry.Result, effect, error) {
	a := attempt{stamp: stamp, origin: c.origin, ops: ops, left: s.refusedUntried(now, c, ops)}
	for {
		if len(a.left) > 0 && c.whole {
			return before, renewing, registry.ErrPanicked
		}
		results, effects, at, cause := s.attempt(before, a)
		if cause == nil {
			s.forgetPerformed(ops, a.left)
			return results, effects, nil
		}
		if err := s.rebuild(cause); err != nil {
			return before, renewing, err
		}
		if at == len(ops) && !c.whole && !a.careful {
			a.careful = true
			continue
		}
		if at = min(at, len(ops)-1); a.left[at] {
			return before, renewing, registry.ErrPanicked // none of them is to blame that was tried
		}
		s.refuse(now, c, ops[at], cause)
		a.careful, a.left = true, a.left.with(at)
	}
}

// attempt is one attempt to perform operations.
type attempt struct {
	stamp   registry.Stamp
	origin  registry.Origin
	ops     []registry.Op
	left    leftOut
	careful bool // the view is made after each operation, so that it is known which one spoils it
}

// leftOut are the operations of a call, by their place, that are not tried (again).
type leftOut map[int]bool

func (l leftOut) with(at int) leftOut {
	if l == nil {
		l = make(leftOut)
	}
	l[at] = true
	return l
}

// attempt appends the results of operations to those of before, up to one that panics: cause is what it panicked with,
// nil if none did. The view is part of an operation, for it shows what the operation made; at is the number of
// operations if it is not known which one spoils it.
func (s *Store) attempt(results []registry.Result, a attempt) (_ []registry.Result, effects effect, at int, cause any) {
	defer func() {
		if p := recover(); p != nil {
			cause = panicked{p, debug.Stack()}
		}
	}()
	amends := s.registry.AmendedCount()
	for at = range a.ops {
		if a.left[at] {
			results = append(results, registry.Result{Outcome: registry.Panicked})
			continue
		}
		op := a.ops[at]
		res := s.registry.Apply(a.stamp, s.id.Boot, a.origin, op)
		if s.cfg.Test.Performed != nil {
			s.cfg.Test.Performed(fsm.Item{Origin: a.origin, Op: op})
		}
		if a.careful {
			s.registry.View()
		}
		effects = max(effects, effectOf(op, res))
		results = append(results, res)
	}
	at = len(a.ops)
	if s.registry.AmendedCount() > amends {
		effects = durable // also of a renewal
	}
	if effects != renewing {
		s.registry.View()
	}
	return results, effects, at, nil
}

// panicked is what an operation panicked with, and where.
type panicked struct {
	cause any
	stack []byte
}

// rebuild throws the registry away, which has half of an operation. If that cannot be done the node ends: nothing of
// what is in memory may reach the disk.
func (s *Store) rebuild(cause any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
		if err != nil {
			s.serving, s.broken = false, true
			select {
			case s.fatal <- fmt.Errorf("an operation panicked (%v), and the registry could not be made anew from its newest view: %w", cause.(panicked).cause, err):
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

// refusedUntried are the operations that have panicked so often that they are not even tried now: each try that
// panics costs a Rebuild.
func (s *Store) refusedUntried(now time.Time, c call, ops []registry.Op) (left leftOut) {
	if len(s.refusals) == 0 {
		return nil
	}
	for i, op := range ops {
		if f := s.refusals[describe(op)]; f != nil && now.Before(f.pausedUntil) {
			left = left.with(i)
			f.Last, f.Server, f.Times = now, c.server, f.Times+1
		}
	}
	return left
}

// paused reports whether an operation has panicked so often that it is not tried now. The caller holds mu.
func (s *Store) paused(op registry.Op) bool {
	if len(s.refusals) == 0 {
		return false
	}
	f := s.refusals[describe(op)]
	return f != nil && time.Now().Before(f.pausedUntil)
}

func describe(op registry.Op) string { return fsm.Describe(fsm.Item{Op: op}) }

// refuse remembers an operation that panicked, and logs the first time.
func (s *Store) refuse(now time.Time, c call, op registry.Op, cause any) {
	p := cause.(panicked)
	s.metrics.panics.Inc()
	what := describe(op)
	f := s.refusals[what]
	if f == nil {
		s.forgetRefusals(now)
		f = &Refusal{Operation: what, First: now}
		f.Key, _ = registry.KeyOf(op)
		s.refusals[what] = f
		s.log.Error("an operation panicked, which is a defect, and was refused: nothing of it has an effect",
			"operation", what, "app", f.Key.App, "id", f.Key.ID, "from", sender(c), "panic", p.cause, "stack", string(p.stack))
	}
	f.Origin, f.Server, f.Cause, f.Last, f.Times = c.origin, c.server, fmt.Sprint(p.cause), now, f.Times+1
	if f.tried++; f.tried >= panicsTried {
		f.tried, f.pausedUntil = panicsTried-1, now.Add(panicsPause)
	}
}

// sender names who sent operations, for the log.
func sender(c call) string {
	return cmp.Or(c.server, c.origin.DC, c.origin.Principal, "a client")
}

// forgetRefusals forgets what was last refused long ago, and makes room for one more.
func (s *Store) forgetRefusals(now time.Time) {
	maps.DeleteFunc(s.refusals, func(_ string, f *Refusal) bool { return now.Sub(f.Last) > refusedFor })
	if len(s.refusals) >= refusalsKnown {
		oldest := slices.MinFunc(slices.Collect(maps.Values(s.refusals)), func(a, b *Refusal) int { return a.Last.Compare(b.Last) })
		delete(s.refusals, oldest.Operation)
	}
}

// forgetPerformed forgets refusals of what was performed now.
func (s *Store) forgetPerformed(ops []registry.Op, left leftOut) {
	if len(s.refusals) == 0 {
		return
	}
	for i, op := range ops {
		if f := s.refusals[describe(op)]; f != nil && !left[i] {
			delete(s.refusals, f.Operation)
			s.log.Info("an operation that had panicked was performed", "operation", f.Operation, "refused", f.Times)
		}
	}
}

// Refusals are the operations that panicked here within the last hour and were not performed since, by name.
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
