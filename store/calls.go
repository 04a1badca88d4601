package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Partly returns the error of a call that failed after some of its operations had taken effect. A plain "no" would be
// wrong.
func Partly(done int, err error) error {
	if done == 0 {
		return err
	}
	return fmt.Errorf("%d operations took effect, of those after them: %w (%v)", done, registry.ErrUnknownOutcome, err)
}

// MaxOpBytes is the largest size of one operation.
const MaxOpBytes = 1 << 20

// SizeOf returns the encoded size of an item, or slightly more.
func SizeOf(item fsm.Item) int {
	if r, ok := item.Op.(registry.Renew); ok { // the most frequent operation is sized without encoding it
		return 44 + len(r.Key.App) + len(r.Key.ID) + len(item.Origin.DC)
	}
	return fsm.Size(item)
}

const (
	// NoLeaderWait is how long an unsent write waits for a leader, so that its caller gets a "no" within a second.
	// Eureka's clients give up after 8 s and try another server: an early, certain "no" serves them better.
	NoLeaderWait = 850 * time.Millisecond
	// ResultWait is how long a sent write waits for its result, so that its caller gets "unknown" within four
	// seconds.
	ResultWait = 3800 * time.Millisecond
	// RetryPause is the pause between attempts to reach a leader.
	RetryPause = 20 * time.Millisecond
)

// AwaitChanges implements Service.Changes for a node that stops when closing ends.
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
