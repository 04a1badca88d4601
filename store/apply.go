package store

import (
	"context"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Apply implements registry.Service.
func (s *Raft) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	items := make([]fsm.Item, len(ops))
	for i, op := range ops {
		items[i] = fsm.Item{Origin: origin, Op: s.shorten(op)}
	}
	results, err := s.applyItems(ctx, items)
	if err != nil {
		return nil, fmt.Errorf("apply %d operations: %w", len(ops), err)
	}
	return s.resendByName(ctx, items, ops, results)
}

// shorten replaces the name of a renewal by the lease's handle, where this node knows one.
func (s *Raft) shorten(op registry.Op) registry.Op {
	renew, ok := op.(registry.Renew)
	if !ok || renew.Overridden != registry.Unknown {
		return op
	}
	if l, ok := s.machine.View().Lease(renew.Key); ok {
		renew.Handle = l.Handle
		return renew
	}
	return op
}

// resendByName repeats, once and by name, the renewals whose handle turned out to be dead: this
// node's view was behind.
func (s *Raft) resendByName(ctx context.Context, items []fsm.Item, ops []registry.Op, results []registry.Result) ([]registry.Result, error) {
	var again []fsm.Item
	var where []int
	for i, r := range results {
		if r.Outcome == registry.GoneHandle {
			again = append(again, fsm.Item{Origin: items[i].Origin, Op: ops[i]})
			where = append(where, i)
		}
	}
	if len(again) == 0 {
		return results, nil
	}
	second, err := s.applyItems(ctx, again)
	if err != nil {
		return nil, fmt.Errorf("apply %d operations by name: %w", len(again), err)
	}
	for i, r := range second {
		results[where[i]] = r
	}
	return results, nil
}

// applyItems commits items in order, in as few batches as their size allows.
func (s *Raft) applyItems(ctx context.Context, items []fsm.Item) ([]registry.Result, error) {
	if len(items) == 1 {
		return s.committer.commit(ctx, items, sizeOf(items[0]))
	}
	var results []registry.Result
	for len(items) > 0 {
		n, size := 0, 0
		for n < len(items) {
			more := sizeOf(items[n])
			if n > 0 && size+more > maxBatchBytes {
				break
			}
			n, size = n+1, size+more
		}
		part, err := s.committer.commit(ctx, items[:n], size)
		if err != nil {
			return nil, err
		}
		results = append(results, part...)
		items = items[n:]
	}
	return results, nil
}

// sizeOf is the encoded size of an item, or a little more.
func sizeOf(item fsm.Item) int {
	if r, ok := item.Op.(registry.Renew); ok {
		return 24 + len(r.Key.App) + len(r.Key.ID)
	}
	return len(fsm.AppendBatch(nil, fsm.BatchID{}, []fsm.Item{item}))
}
