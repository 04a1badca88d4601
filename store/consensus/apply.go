package consensus

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
)

// Apply implements registry.Service.
func (s *Raft) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	items := make([]fsm.Item, len(ops))
	patient := len(ops) > 0
	renewals, unknown := true, false
	for i, op := range ops {
		items[i] = fsm.Item{Origin: origin, Op: s.shorten(op)}
		renew, ok := items[i].Op.(registry.Renew)
		repeats := s.repeatsCheck(op)
		changes := !ok || renew.Status != registry.Unknown
		// other heartbeats do not name their sender: there are too many
		if changes && !repeats && origin.Kind == registry.Client {
			items[i].By = access.SenderOf(ctx)
		}
		patient = patient && repeats
		renewals = renewals && ok
		unknown = unknown || ok && !s.finds(renew)
	}
	if renewals && unknown {
		return s.renewUnknown(ctx, origin, ops)
	}
	pace := paceOf(patient)
	if renewals && len(ops) > 0 && origin.Kind == registry.Client && s.cfg.RenewalWait > 0 {
		if line, came := registry.LineOf(ctx), time.Now(); line.MayWait(came) {
			pace = mayWait
			defer func() { line.Waited(came, time.Now()) }()
		}
	}
	return s.commitOps(ctx, items, ops, pace)
}

// paceOf returns the pace of operations that change nothing but a time, if they may wait, and of all others.
func paceOf(patient bool) pace {
	if patient {
		return gathered
	}
	return atOnce
}

func (s *Raft) commitOps(ctx context.Context, items []fsm.Item, ops []registry.Op, pace pace) ([]registry.Result, error) {
	results, err := s.committer.Commit(ctx, items, pace)
	if err != nil {
		return nil, fmt.Errorf("apply %d operations: %w", len(ops), err)
	}
	return s.resendByName(ctx, items, ops, results.Registry)
}

// finds reports whether this node's copy has the instance that a renewal names.
func (s *Raft) finds(renew registry.Renew) bool {
	if renew.Handle != (registry.Handle{}) {
		return true
	}
	_, ok := s.machine.View().Find(renew.Key)
	return ok
}

// renewUnknown performs renewals, some of them for instances that this node does not know. Any client can send those
// endlessly, so they stay out of the log: a linearizable read decides that they are not found. All others are
// committed.
func (s *Raft) renewUnknown(ctx context.Context, origin registry.Origin, ops []registry.Op) ([]registry.Result, error) {
	if err := s.reader.CatchUp(ctx, registry.Linearizable); err != nil {
		return nil, fmt.Errorf("renew %d instances: %w", len(ops), err)
	}
	results := make([]registry.Result, len(ops))
	var items []fsm.Item
	var known []registry.Op
	var where []int
	for i, op := range ops {
		if renew := op.(registry.Renew); s.machine.Ignores(renew) {
			results[i] = registry.Result{Outcome: registry.NotFound}
			continue
		}
		items = append(items, fsm.Item{Origin: origin, Op: s.shorten(op)})
		known, where = append(known, op), append(where, i)
	}
	if len(known) == 0 {
		return results, nil
	}
	committed, err := s.commitOps(ctx, items, known, atOnce)
	if err != nil {
		return nil, err
	}
	for i, r := range committed {
		results[where[i]] = r
	}
	return results, nil
}

// shorten replaces the name in a renewal with the lease's handle if this node knows it, unless the renewal carries
// something that the short form has no room for.
func (s *Raft) shorten(op registry.Op) registry.Op {
	renew, ok := op.(registry.Renew)
	if !ok || renew.NeedsName() {
		return op
	}
	if l, ok := s.machine.View().Find(renew.Key); ok {
		renew.Handle = l.Handle
		return renew
	}
	return op
}

// resendByName repeats, once and by name, the renewals whose handle turned out to be dead because this node's view
// was behind.
func (s *Raft) resendByName(ctx context.Context, items []fsm.Item, ops []registry.Op, results []registry.Result) ([]registry.Result, error) {
	var again []fsm.Item
	var where []int
	for i, r := range results {
		if r.Outcome == registry.DeadHandle {
			again = append(again, fsm.Item{Origin: items[i].Origin, Op: ops[i]})
			where = append(where, i)
		}
	}
	if len(again) == 0 {
		return results, nil
	}
	second, err := s.committer.Commit(ctx, again, atOnce)
	if err != nil {
		return nil, fmt.Errorf("apply %d operations by name: %w", len(again), store.Partly(len(results)-len(again), err))
	}
	results = slices.Clone(results) // the state machine remembers the original
	for i, r := range second.Registry {
		results[where[i]] = r
	}
	return results, nil
}

// repeatsCheck reports whether an operation is a heartbeat that sets a check to the state this node already has, as
// most do: it changes nothing but the time of the last one. A passing check keeps its output.
func (s *Raft) repeatsCheck(op registry.Op) bool {
	beat, ok := op.(registry.SetCheck)
	if !ok || !beat.TTL {
		return false
	}
	c, ok := s.machine.View().CheckOn(beat.Node, beat.Check)
	return ok && c.Status == beat.Status && (c.Status == catalog.Passing || c.Output == beat.Output)
}
