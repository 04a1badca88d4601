package store

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

const (
	// endingBatch bounds the ends of sessions and lock-delays in one entry, and endingLimit those that one
	// step proposes.
	endingBatch = 500
	endingLimit = 10_000
	// hearing is how long after a stall those who could not be heard have to renew.
	hearing = time.Second
)

// coordinationEnv is what a coordinator needs of the store that it works for.
type coordinationEnv struct {
	// clock and confirm are as in evictionEnv.
	clock   func() (now int64, stalls int)
	confirm func(context.Context) bool
	due     func(now int64, limit int) []kv.Op
	apply   func(context.Context, ...kv.Op) ([]kv.Result, error)
	log     *slog.Logger
	metrics *coordinationMetrics
}

// coordinator ends sessions and lock-delays at their time, for one leadership. It looks at every
// reading of the clock, at the top of a heap: a session goes within a tenth of a second of its end. What is
// not committed is looked for again at the next reading, by what the state says then.
//
// All times are the lease clock's.
type coordinator struct {
	coordinationEnv
	believed int   // stalls of the clock up to which this node's knowledge was confirmed
	next     int64 // nothing is ended before
	row      stallRow
	failing  bool // the last proposal was not committed, and that was logged
}

// run ends sessions and lock-delays until ctx ends.
func (c *coordinator) run(ctx context.Context) {
	tick := time.NewTicker(clockInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.step(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// step ends what is due. A panic costs that step only.
func (c *coordinator) step(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			c.metrics.panics.Inc()
			c.log.Error("ending sessions panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	now, stalls := c.clock()
	c.row.note(now, stalls != c.believed)
	if stalls != c.believed {
		c.catchUp(ctx, now, stalls)
		return
	}
	until := now
	if now < c.next {
		began, long := c.row.long(2 * hearing.Milliseconds())
		if !long {
			return
		}
		until = began
	}
	c.row.over()
	for ops := range slices.Chunk(c.due(until, endingLimit), endingBatch) {
		if !c.propose(ctx, ops) {
			return
		}
	}
}

// catchUp comes back from a stall, as the evictor does.
func (c *coordinator) catchUp(ctx context.Context, now int64, stalls int) {
	if c.confirm(ctx) {
		c.believed, c.next = stalls, now+hearing.Milliseconds()
	}
}

// propose applies what is due. That it could not be applied is said once, until something was.
func (c *coordinator) propose(ctx context.Context, ops []kv.Op) bool {
	results, err := c.apply(ctx, ops...)
	if err != nil && !c.failing && ctx.Err() == nil {
		c.log.Warn("the end of sessions or lock-delays was not committed", "operations", len(ops), "err", err)
	}
	c.failing = err != nil
	expired := 0
	for i, r := range results {
		if _, session := ops[i].(kv.ExpireSession); session && r.Index != 0 {
			expired++
		}
	}
	if expired > 0 {
		c.metrics.expired.Add(float64(expired))
		c.log.Info("sessions expired", "sessions", expired)
	}
	return err == nil
}

// coordinationEnv is what the coordinator of a leadership needs.
func (s *Raft) coordinationEnv() coordinationEnv {
	return coordinationEnv{
		clock:   func() (int64, int) { return s.clock.read(time.Now()) },
		confirm: s.tick,
		due:     s.machine.KVDue,
		apply:   s.Coordination().Apply,
		log:     s.log,
		metrics: s.metrics.coordination,
	}
}
