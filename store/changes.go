package store

import (
	"context"
	"errors"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// AwaitChanges is Service.Changes of a node that stops when closing ends.
func AwaitChanges(ctx, closing context.Context, watchers *registry.Watchers, newest func() *registry.View, after registry.Index, which registry.Selector) (registry.Changes, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(closing, cancel)()
	changes, err := watchers.Await(waiting, newest, after, which)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return registry.Changes{}, registry.ErrClosed
	}
	return changes, err
}
