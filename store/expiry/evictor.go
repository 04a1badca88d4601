package expiry

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// evictionBatch bounds one Evict entry.
const evictionBatch = 1000

// EvictorEnv is what an evictor needs from its store.
type EvictorEnv struct {
	Epoch registry.Epoch // the leadership; without consensus, the boot
	// Clock reads the lease clock (ms), and returns how many stalls it has noticed so far.
	Clock func() (now int64, stalls int)
	// Confirm makes sure, after a stall, that this node's knowledge is up to date.
	Confirm func(context.Context) bool
	View    func() *registry.View
	Expired func(now int64, limit int) []registry.EvictItem
	Ending  func(now int64) []registry.Op
	// Owner returns the datacenter of a lease, and Spares reports whether another datacenter's leases stay for now.
	// If Spares is nil they end like all others.
	Owner  func(registry.Handle) string
	Spares SparePolicy
	Apply  func(context.Context, ...registry.Op) ([]registry.Result, error)
	Draw   func(k int) int // draws a random number in [0, k)

	Interval time.Duration // between rounds
	Upstream bool          // evict when upstream's timer would, see upstreamTimer
	Log      *slog.Logger
	Metrics  EvictorMetrics
}

// Evictor ends leases, overrides, quarantines and checks at their time, and moves self-preservation from state to
// state, for one leadership (without consensus: for as long as the node runs).
//
// Rounds and the share. The evictor holds a round once per interval, and as soon as something is due, which it checks
// at every reading of the clock (it costs a look at the top of a heap): a crash is noticed within a tenth of a second
// of the end of its lease and not only at the next tick. But within any stretch of one interval, wherever it begins,
// it never evicts more than the allowed share of the registry: what was evicted within the last interval counts, and
// once the share is used up no round is held early until some of it is free again. Nor is one held early while
// evictions are withheld. Overrides, quarantines and checks end at their time all the same. A new leadership holds
// its first round an interval after it began, so the share holds across leaderships too.
//
// All times are the lease clock's: what it does not charge to the leases delays a round as well.
type Evictor struct {
	EvictorEnv
	believed    int   // stalls of the clock up to which this node's knowledge was confirmed
	next        int64 // when the next round begins at the latest
	returnUntil int64 // until then, clients that could not be heard during the last stall have time to renew
	early       bool  // the round may begin earlier, if there is something to end
	row         stallRow
	evictions   []eviction // within the last interval
	timer       upstreamTimer
	seen        registry.Preservation // newest transition that was logged
	failing     bool                  // the last proposal was not committed, which is logged already
}

// eviction counts what one round evicted.
type eviction struct {
	at     int64 // lease clock, ms
	leases int
}

// NewEvictor returns an evictor for a leadership that was just established.
func NewEvictor(env EvictorEnv) *Evictor {
	now, _ := env.Clock()
	return &Evictor{EvictorEnv: env, timer: upstreamTimer{last: now}, seen: env.View().Preservation()}
}

// Run ends leases until ctx ends.
func (e *Evictor) Run(ctx context.Context) {
	wait.Every(ctx, ClockInterval, func(time.Time) { e.step(ctx) })
}

// step holds a round if it is time for one. A panic costs only that round.
func (e *Evictor) step(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			e.Metrics.panics.Inc()
			e.Log.Error("eviction round panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	now, stalls := e.Clock()
	e.row.record(now, stalls != e.believed)
	if stalls != e.believed {
		// After a stall (a pause of the process, a new leadership) everything committed meanwhile must be applied, and
		// clients that could not be heard get one interval to renew. If the next stall comes before that is over, see
		// stallRow.
		if e.Confirm(ctx) {
			e.believed, e.returnUntil = stalls, now+returnTime.Milliseconds()
			e.next, e.early = now+e.Interval.Milliseconds(), false
		}
		return
	}
	began, long := e.row.long(2 * max(e.Interval, returnTime).Milliseconds())
	switch {
	case now >= e.next, e.early && e.due(now):
		e.round(ctx, now, now)
	case long:
		e.round(ctx, now, began)
	case now >= e.returnUntil:
		e.proposeEnding(ctx, now)
	}
}

// due reports whether there is something to end.
func (e *Evictor) due(now int64) bool {
	switch {
	case len(e.Ending(now)) > 0:
		return true
	case e.Upstream:
		return e.timer.due(now)
	}
	return e.left(now) > 0 && len(e.Expired(now, 1)) > 0
}

// left returns how many leases may be evicted now.
func (e *Evictor) left(now int64) int {
	e.evictions = slices.DeleteFunc(e.evictions, func(t eviction) bool { return now-t.at >= e.Interval.Milliseconds() })
	evicted := 0
	for _, t := range e.evictions {
		evicted += t.leases
	}
	return e.View().RoundLimit(evicted)
}

// round does what is due, ordered so that no step invalidates the decision of an earlier one: first whether evictions
// are withheld, last the evictions. What ends after the given time is left to the next round.
func (e *Evictor) round(ctx context.Context, now, until int64) {
	e.row.reset()
	e.next, e.early = now+e.Interval.Milliseconds(), e.Upstream
	evicts, additional := !e.Upstream || e.timer.due(now), int64(0)
	if e.Upstream && evicts {
		additional = e.timer.run(now)
	}
	decided := true // otherwise a transition was due and could not be made, and this round must not rely on the old state
	if op, due := e.View().NextPreservation(now, e.View().Freshness(now)); due {
		op.Epoch = e.Epoch
		results, ok := e.propose(ctx, op)
		decided = ok && results[0].Outcome == registry.Done
	}
	e.recordTransitions(ctx)
	if !decided || !e.proposeEnding(ctx, until) || !evicts || e.View().Preservation().State.Withholds() {
		return
	}
	ended := e.Expired(until-additional, e.View().Total())
	all := len(ended)
	due := e.spare(now, ended)
	// Leases that stay are still at the top of the heap, so no early round follows then.
	e.early = e.evict(ctx, now, due) && len(due) == all || e.Upstream
}

// proposeEnding ends expired overrides and quarantines, turns checks critical whose TTL has passed, and removes what
// has been critical for too long.
func (e *Evictor) proposeEnding(ctx context.Context, now int64) bool {
	ops := e.Ending(now)
	if len(ops) == 0 {
		return true
	}
	_, ok := e.propose(ctx, ops...)
	return ok
}

// evict removes what is left of the share from the due leases. It returns false if an entry was not committed, or
// must not be.
func (e *Evictor) evict(ctx context.Context, now int64, due []registry.EvictItem) (ok bool) {
	all := len(due)
	evicted := 0
	ok = true
	for items := range slices.Chunk(registry.Victims(due, e.left(now), e.Draw), evictionBatch) {
		if e.View().Preservation().State.Withholds() {
			ok = false // an operator's hold came between two entries
			break
		}
		e.evictions = append(e.evictions, eviction{now, len(items)}) // an entry that seems lost may still take effect
		var results []registry.Result
		if results, ok = e.propose(ctx, registry.Evict{Epoch: e.Epoch, Items: items}); !ok {
			break
		}
		evicted += results[0].Count
	}
	if evicted > 0 {
		e.Metrics.evicted.Add(float64(evicted))
		e.Log.Info("evicted", "leases", evicted, "due", all, "left", e.View().Total())
	}
	return ok
}

// propose applies operations of a round. It logs a failure once, until some are applied again.
func (e *Evictor) propose(ctx context.Context, ops ...registry.Op) ([]registry.Result, bool) {
	results, err := e.Apply(ctx, ops...)
	if err != nil && !e.failing && ctx.Err() == nil {
		e.Log.Warn("eviction round was not committed", "operations", len(ops), "err", err)
	}
	e.failing = err != nil
	return results, err == nil
}

// recordTransitions logs and counts the transitions of self-preservation since the last call, including an
// operator's.
func (e *Evictor) recordTransitions(ctx context.Context) {
	v := e.View()
	var unseen []registry.Preservation
	for _, p := range v.Transitions() {
		if p == e.seen {
			break
		}
		unseen = append(unseen, p)
	}
	if len(unseen) == 0 {
		return
	}
	e.seen = unseen[0]
	for _, p := range slices.Backward(unseen) {
		e.Metrics.transitions.WithLabelValues(p.State.String()).Inc()
		level, message := slog.LevelInfo, "self-preservation lets evictions go on"
		if p.State.Withholds() {
			level, message = slog.LevelWarn, "self-preservation withholds evictions"
		}
		_, reason := v.Condition(p.Figures)
		e.Log.Log(ctx, level, message, "state", p.State.String(), "reason", reason,
			"leases", p.Figures.Leases, "counted", p.Figures.Counted, "fresh", p.Figures.Fresh, "expired", p.Figures.Expired,
			"author", p.By.Author, "note", p.By.Reason)
	}
}

// spare drops from the ended leases those of other datacenters that stay for now.
func (e *Evictor) spare(now int64, due []registry.EvictItem) []registry.EvictItem {
	if e.Spares == nil {
		return due
	}
	spared := map[string]bool{"": false} // by datacenter
	return slices.DeleteFunc(due, func(item registry.EvictItem) bool {
		dc := e.Owner(item.Handle)
		stays, asked := spared[dc]
		if !asked {
			var silent time.Duration
			link, heard := e.View().Link(dc)
			if heard {
				silent = time.Duration(now-link.LastContact) * time.Millisecond
			}
			stays = e.Spares(dc, silent, heard)
			spared[dc] = stays
		}
		return stays
	})
}

// allInGrace reports whether there are leases and not one of them can end yet, because a leadership was established
// only recently. now and established are lease clock, ms.
func allInGrace(v *registry.View, established, now int64) bool {
	some := false
	for l := range v.All() {
		some = true
		if !v.InGrace(l, established, now) {
			return false
		}
	}
	return some
}

// SparePolicy reports whether expired leases of another datacenter stay for now. silent is how long ago (lease clock)
// it was last heard; ok is false if it never was.
type SparePolicy func(dc string, silent time.Duration, ok bool) bool

// upstreamInterval is upstream's default of evictionIntervalTimerInMs.
const upstreamInterval = 60 * time.Second

// upstreamTimer says when upstream's EvictionTask would run: for the first time one interval after it was started. It
// counts on the lease clock, in ms.
type upstreamTimer struct {
	last int64 // the last run, initially the start
	ran  bool
}

// due reports whether it is time to run.
func (t *upstreamTimer) due(now int64) bool {
	return now-t.last >= upstreamInterval.Milliseconds()
}

// run records a run, and returns by how much it came too late: every lease is granted that time. The first run is
// never late. Source: AbstractInstanceRegistry.EvictionTask.getCompensationTimeMs.
func (t *upstreamTimer) run(now int64) (compensation int64) {
	if t.ran {
		compensation = max(0, now-t.last-upstreamInterval.Milliseconds())
	}
	t.last, t.ran = now, true
	return compensation
}

// Reign is the time when this node decides which leases end: its leadership, or without consensus its run.
type Reign struct {
	Epoch       registry.Epoch
	Established int64       // lease clock, ms
	youth       atomic.Bool // no lease can end yet, see allInGrace
}

// NewReign starts a reign with the leases of a view.
func NewReign(epoch registry.Epoch, established int64, v *registry.View) *Reign {
	r := &Reign{Epoch: epoch, Established: established}
	r.youth.Store(allInGrace(v, established, established))
	return r
}

// Young reports whether there are leases and none of them can end yet.
func (r *Reign) Young() bool { return r.youth.Load() }

// Grow notices, once, that leases can end.
func (r *Reign) Grow(v *registry.View, now int64) {
	if r.youth.Load() && !allInGrace(v, r.Established, now) {
		r.youth.Store(false)
	}
}
