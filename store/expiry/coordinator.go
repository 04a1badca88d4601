package expiry

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

const (
	// endingBatch bounds the ends of sessions and lock delays in one entry, and endingLimit those that one step
	// proposes.
	endingBatch = 500
	endingLimit = 10_000
	// returnTime is how long clients that could not be heard have to renew after a stall.
	returnTime = time.Second
)

// CoordinatorEnv is what a coordinator needs from its store.
type CoordinatorEnv struct {
	// Clock and Confirm are as in EvictorEnv.
	Clock   func() (now int64, stalls int)
	Confirm func(context.Context) bool
	Due     func(now int64, limit int) []kv.Op
	Apply   func(context.Context, ...kv.Op) ([]kv.Result, error)
	Log     *slog.Logger
	Metrics *CoordinatorMetrics
}

// Coordinator ends sessions and lock delays at their time, for one leadership. It examines the top of a heap at every
// reading of the clock: a session goes within a tenth of a second of its end. What is not committed is examined again
// at the next reading, against the state at that time.
//
// All times are the lease clock's.
type Coordinator struct {
	CoordinatorEnv
	believed int   // stalls of the clock up to which this node's knowledge was confirmed
	next     int64 // nothing ends before this time
	row      stallRow
	failing  bool // the last proposal was not committed, which is logged already
}

// Run ends sessions and lock delays until ctx ends.
func (c *Coordinator) Run(ctx context.Context) {
	wait.Every(ctx, ClockInterval, func(time.Time) { c.step(ctx) })
}

// step ends what is due. A panic costs only that step.
func (c *Coordinator) step(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			c.Metrics.panics.Inc()
			c.Log.Error("ending sessions panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	now, stalls := c.Clock()
	c.row.record(now, stalls != c.believed)
	if stalls != c.believed {
		if c.Confirm(ctx) { // comes back from a stall, as the evictor does
			c.believed, c.next = stalls, now+returnTime.Milliseconds()
		}
		return
	}
	until := now
	if now < c.next {
		began, long := c.row.long(2 * returnTime.Milliseconds())
		if !long {
			return
		}
		until = began
	}
	c.row.reset()
	for ops := range slices.Chunk(c.Due(until, endingLimit), endingBatch) {
		if !c.propose(ctx, ops) {
			return
		}
	}
}

// propose applies what is due. It logs a failure once, until something is applied again.
func (c *Coordinator) propose(ctx context.Context, ops []kv.Op) bool {
	results, err := c.Apply(ctx, ops...)
	if err != nil && !c.failing && ctx.Err() == nil {
		c.Log.Warn("the end of sessions or lock-delays was not committed", "operations", len(ops), "err", err)
	}
	c.failing = err != nil
	expired := 0
	for i, r := range results {
		if _, session := ops[i].(kv.ExpireSession); session && r.Index != 0 {
			expired++
		}
	}
	if expired > 0 {
		c.Metrics.Expired.Add(float64(expired))
		c.Log.Info("sessions expired", "sessions", expired)
	}
	return err == nil
}

// NewCoordinator returns a coordinator for a leadership that was just established.
func NewCoordinator(env CoordinatorEnv) *Coordinator { return &Coordinator{CoordinatorEnv: env} }
