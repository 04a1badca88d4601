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

// repairRetry is the time after a comparison that failed, where nothing can be sent without it.
const repairRetry = time.Second

// The reasons of repairs.
const (
	repairFirst  = "first"   // nothing is known of the peer
	repairTooOld = "too-old" // the change list does not reach back
	repairDigest = "digest"  // the comparison that is made anyway
	repairAsked  = "asked"   // by an operator
)

// finding is what a comparison found.
type finding struct {
	reason string
	view   *registry.View // from before the comparison
	diff   api.PeerDiff
	tasks  []link.Task
	err    error
	queued chan struct{} // closed when the feed has the tasks; nil: no caller waits
}

// comparisons compares with the peer beside the feed, because the peer may be slow. All but find belongs to
// the goroutine of the feed.
type comparisons struct {
	*peer
	found   chan finding // what was found, for the feed
	running bool         // a comparison of start, until its finding was received
	started time.Time    // when the last one was
	group   sync.WaitGroup
}

// untilDigest varies, so that peers are not compared with all at the same time.
func (c *comparisons) untilDigest() time.Duration {
	d := c.config.Digest
	return d - d/10 + rand.N(d/5+1)
}

// retryDue says whether a comparison may be tried that nothing can be sent without.
func (c *comparisons) retryDue() bool {
	return !c.running && time.Since(c.started) >= repairRetry
}

// start has a finding sent to found.
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

// live is how many tasks are of instances that are registered.
func live(tasks []link.Task) int {
	n := 0
	for _, t := range tasks {
		if t.Facts&link.Canceled == 0 {
			n++
		}
	}
	return n
}
