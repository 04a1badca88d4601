package store

import (
	"context"
	"errors"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Changes implements registry.Service.
func (s *Raft) Changes(ctx context.Context, after registry.Index, which registry.Selector) (registry.Changes, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	changes, err := s.watchers.Await(waiting, s.machine.View, after, which)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return registry.Changes{}, registry.ErrClosed
	}
	return changes, err
}
