package replication

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// repairRetry is the pause after a failed comparison while nothing can be sent without one.
const repairRetry = time.Second

// Reasons for a repair.
const (
	repairFirst  = "first"   // nothing is known of the peer
	repairTooOld = "too-old" // the change list does not reach back
	repairDigest = "digest"  // the regular comparison
	repairAsked  = "asked"   // asked for by an operator
)

// finding is the result of a comparison.
type finding struct {
	reason string
	view   *registry.View // from before the comparison
	diff   api.PeerDiff
	tasks  []link.Task
	err    error
	queued chan struct{} // closed when the feed has the tasks; nil if no caller waits
}

// comparisons compares with the peer beside the feed, because the peer may be slow. All but find belongs to the
// goroutine of the feed.
type comparisons struct {
	*peer
	found   chan finding // for the feed
	running bool         // a comparison was started, and its finding not received yet
	started time.Time    // when the last one started
	group   sync.WaitGroup
}

// untilDigest varies, so that not all peers are compared with at the same time.
func (c *comparisons) untilDigest() time.Duration {
	d := c.config.Digest
	return d - d/10 + rand.N(d/5+1)
}

// start starts a comparison, which sends its finding to found.
func (c *comparisons) start(ctx context.Context, reason string) {
	c.running, c.started = true, time.Now()
	c.group.Go(func() {
		f := c.find(ctx, reason)
		select {
		case c.found <- f:
		case <-ctx.Done():
		}
	})
}

// find compares, for a repair.
func (c *comparisons) find(ctx context.Context, reason string) finding {
	f := finding{reason: reason, view: c.config.View()}
	f.diff, f.tasks, f.err = c.link.Compare(ctx, true)
	if errors.Is(f.err, link.ErrNoDigests) {
		f.diff, f.err = api.PeerDiff{Missing: live(f.tasks)}, nil
	}
	return f
}

// live counts the tasks whose instances are registered.
func live(tasks []link.Task) int {
	n := 0
	for _, t := range tasks {
		if t.Facts&link.Canceled == 0 {
			n++
		}
	}
	return n
}
