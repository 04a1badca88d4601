package consensus

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// waitFuture waits for a future of hashicorp/raft, which may never be answered, for at most limit.
func waitFuture(ctx context.Context, f raft.Future, limit time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return fmt.Errorf("%w within %v", errNoAnswer, limit)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
}

// later is a future that one has to wait for to get it: Raft takes the wish for a snapshot when it has done with the
// one before.
type later func() raft.SnapshotFuture

// Error implements raft.Future.
func (l later) Error() error { return l().Error() }
