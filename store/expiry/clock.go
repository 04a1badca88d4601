package expiry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/internal/world"
)

// Bounds of the lease clock.
const (
	// MaxStep is the most that one reading may add: a pause, a frozen machine or a clock jump is not charged to any
	// lease.
	MaxStep = 500 * time.Millisecond
	// maxLead is how far the clock may run ahead of the newest applied entry, so that time when nothing could be
	// committed is not charged either.
	maxLead = 2 * time.Second
	// TickAge is how old the newest stamp may get while leases exist, before the leader writes an
	// empty entry: followers and the next leader learn the lease clock from entries.
	TickAge = time.Second
	// ClockInterval is the longest time between two readings while the clock runs.
	ClockInterval = 100 * time.Millisecond
)

// Clock is the running lease clock of a leader. It advances at every reading, by monotonic time
// only, and stands still while stopped. Wall clocks of two nodes are never compared.
type Clock struct {
	World *world.World // nil means the real machine

	mu      sync.Mutex
	running bool
	value   time.Duration
	applied time.Duration
	last    time.Time
	wall    time.Time // the wall clock at the last reading
	stalls  int
	seen    atomic.Int64 // value in ms, for readers that must not wait
	// the wall clock at the last reading, ns since the Unix epoch, for the same readers; 0 if the clock was never
	// started
	readAt atomic.Int64
	lost   atomic.Int64 // how long the clock stood still while it was running, in total, ns
}

// Start makes the clock go on from base, which the leader's Establish entry returned.
func (c *Clock) Start(base int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.value = time.Duration(base) * time.Millisecond
	c.applied = c.value
	c.running = true
	c.seen.Store(base)
	c.setLast(now)
	c.stalls++ // whatever was decided before this leadership must not lead to an eviction
}

// Stop makes the clock stand still.
func (c *Clock) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
}

// Observe takes over the stamp of an applied entry.
func (c *Clock) Observe(stamp int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied = max(c.applied, time.Duration(stamp)*time.Millisecond)
}

// Read advances the clock to now and returns it in ms, with the number of stalls noticed so far: a caller that sees
// the number change must not trust what it knew before.
func (c *Clock) Read(now time.Time) (ms int64, stalls int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		step := now.Sub(c.last)
		// The monotonic clock stands still while the machine is suspended; the wall clock is corrected later.
		passed := max(step, c.World.Wall(now).Round(0).Sub(c.wall))
		if step > MaxStep {
			step = MaxStep
			c.stalls++
		}
		if step > 0 {
			c.lost.Add(max(0, int64(passed-MaxStep)))
			c.value = max(c.value, min(c.value+step, c.applied+maxLead))
			c.setLast(now)
		}
	}
	ms = c.value.Milliseconds()
	c.seen.Store(ms)
	return ms, c.stalls
}

// Stands reports, without a lock, whether the clock was not read for longer than one reading may add, or the wall
// clock was set.
func (c *Clock) Stands(now time.Time) bool {
	at := c.readAt.Load()
	return at != 0 && time.Duration(c.World.Wall(now).UnixNano()-at).Abs() > MaxStep
}

// Glance returns the clock in ms as of its last reading, without advancing it and without a lock. While the clock
// runs, that reading is at most ClockInterval old.
func (c *Clock) Glance() int64 { return c.seen.Load() }

// Lost returns how long the clock stood still while it was running, in total.
func (c *Clock) Lost() time.Duration { return time.Duration(c.lost.Load()) }

// PauseBy makes the last reading look older by d, as after a pause of the process. For tests.
func (c *Clock) PauseBy(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLast(c.last.Add(-d))
}

// setLast records a reading. The caller holds mu.
func (c *Clock) setLast(now time.Time) {
	c.last, c.wall = now, c.World.Wall(now).Round(0)
	c.readAt.Store(c.wall.UnixNano())
}

// stallRow is a row of stalls of the lease clock, each coming before the wait after the last one is over, as on a
// machine that gets a processor for only a part of each second. The wait alone would never end then. So what had
// ended before the row began is dealt with once clients that could not be heard had enough time between the stalls.
// All times are the lease clock's, in ms.
type stallRow struct {
	began int64 // its first stall
	going bool
	read  int64 // the last reading of the clock
	awake int64 // time between stalls since it began
}

// record adds a reading of the clock, and whether a stall came before it.
func (r *stallRow) record(now int64, stalled bool) {
	switch {
	case stalled && !r.going:
		*r = stallRow{began: now, going: true}
	case r.going && !stalled:
		r.awake += now - r.read
	}
	r.read = now
}

// reset ends the row.
func (r *stallRow) reset() { *r = stallRow{read: r.read} }

// long reports whether the row goes on although its stalls left this much time between them (ms), and when it began.
func (r *stallRow) long(awake int64) (began int64, ok bool) {
	return r.began, r.going && r.awake >= awake
}
