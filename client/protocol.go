package client

import (
	"context"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// protocol is how a session gets one lock or permit, and gives it back. It is used by one goroutine at a
// time, but for watch.
type protocol interface {
	// take waits until the session has it, and returns the acquisition. It may have it also after an error.
	take(ctx context.Context) (kv.Fence, error)
	// release gives it back, in one try, and says whether the session had it. Without an Index it leaves the
	// queue as well.
	release(ctx context.Context, fence kv.Fence) (bool, error)
}

// watched is a protocol whose locks may be lost although their session lasts.
type watched interface {
	// watch returns nil when ctx has ended, and otherwise why the lock is not held any more.
	watch(ctx context.Context) error
}

// protocol chooses Rollcall's own locks, or Consul's recipes.
func (p permit) protocol(k *keeper) protocol {
	switch {
	case !p.Recipe:
		return queue{k, p}
	case p.kind == kv.Semaphore:
		return &semaphoreRecipe{recipe: newRecipe(k, p)}
	}
	return lockRecipe{newRecipe(k, p)}
}
