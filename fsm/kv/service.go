package kv

import (
	"context"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Service is sessions, keys and locks as their users see them. It needs consensus: only store.Raft
// implements it. Safe for concurrent use. Its errors are those of registry.Service.
type Service interface {
	// Apply performs ops in order, one result per op. The context bounds the wait, not the effect.
	Apply(ctx context.Context, ops ...Op) ([]Result, error)
	// View returns the state, at least as new as read demands; Stale never fails.
	View(ctx context.Context, read order.Consistency) (*View, error)
	// Watch begins to wait for a change. Whoever waits calls it first, then reads a View, and waits if
	// that shows nothing new: then no change is missed.
	Watch(t Topic) *Wait
}
