package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Partly is the error of a call of which so many operations took effect already: "no" would be wrong.
func Partly(done int, err error) error {
	if done == 0 {
		return err
	}
	return fmt.Errorf("%d operations took effect, of those after them: %w (%v)", done, registry.ErrUnknownOutcome, err)
}

// MaxOpBytes is how large one operation may be.
const MaxOpBytes = 1 << 20

// SizeOf is the encoded size of an item, or a little more.
func SizeOf(item fsm.Item) int {
	if r, ok := item.Op.(registry.Renew); ok { // the most frequent one costs nothing
		return 44 + len(r.Key.App) + len(r.Key.ID) + len(item.Origin.DC)
	}
	return fsm.Size(item)
}

const (
	// NoLeaderWait is how long a write that was not sent waits for a leader: its caller is told "no"
	// within a second. Eureka's clients give up after 8 s and try another server, so an early,
	// certain "no" serves them better.
	NoLeaderWait = 850 * time.Millisecond
	// ResultWait is how long a write that was sent waits for its result: its caller is told "unknown"
	// within four seconds.
	ResultWait = 3800 * time.Millisecond
	// RetryPause is the pause between two attempts to reach a leader.
	RetryPause = 20 * time.Millisecond
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
