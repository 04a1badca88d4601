package consensus

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// gatherFor is how long a renewal waits for others at most. Sessions are renewed by the thousand, each
// for itself, long before its time is up: committed as they come, they would keep the log busy with
// entries of one or two. A write must not wait so, which is why nothing else does (see committer).
const gatherFor = 100 * time.Millisecond

// gather is commit for what can wait for company. Whoever comes first sets the time.
func (c *committer) gather(ctx context.Context, items []fsm.Item, size int) (answers, error) {
	if c.patience == 0 {
		return c.commit(ctx, items, size)
	}
	k := &call{items: items, size: size, done: make(chan struct{})}
	if !c.collect(k) {
		return answers{}, registry.ErrClosed
	}
	return c.await(ctx, k)
}

func (c *committer) collect(k *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if len(c.gathered) == 0 {
		time.AfterFunc(c.patience, c.release)
	}
	c.gathered = append(c.gathered, k)
	return true
}

// release queues what was gathered. From here on it has arrived: whoever waits for a leader does so as
// long as anybody else.
func (c *committer) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.gathered) == 0 {
		return // closed meanwhile
	}
	now := time.Now()
	for _, k := range c.gathered {
		k.arrived = now
	}
	c.calls = append(c.calls, c.gathered...)
	c.gathered = nil
	c.signal()
}
