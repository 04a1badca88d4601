package commit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// newTestCommitter returns a committer that sends nothing.
func newTestCommitter() *Committer {
	return New(Config{InFlight: 1, Nodes: port.NewNodes(nil, nil), Metrics: NewMetrics(prometheus.NewRegistry())})
}

func renewal() []fsm.Item {
	return []fsm.Item{{KV: kv.RenewSession{ID: "00000000-0000-0000-0000-000000000001"}}}
}

// waiting is how many calls are queued, and how many wait for company.
func (c *Committer) waiting() (queued, gathered int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls), len(c.gathered)
}

func TestGatheredRenewalsWaitForCompanyAndAreQueuedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		began := time.Now()
		for range 10 {
			all.Go(func() { c.gather(ctx, renewal(), 50, Gathered) })
			time.Sleep(GatherFor / 20)
		}
		synctest.Wait()
		queued, _ := c.waiting()
		expect.That(t, queued == 0, "%d renewals are queued after half the time, want none", queued)
		time.Sleep(GatherFor / 2)
		synctest.Wait()
		if queued, gathered := c.waiting(); queued != 10 || gathered != 0 || len(c.wake) != 1 {
			t.Errorf("%d are queued, %d are not, want all; woken: %d", queued, gathered, len(c.wake))
		}
		c.mu.Lock()
		for _, k := range c.calls {
			expect.Equal(t, k.arrived.Sub(began), GatherFor, "counted as arrived")
		}
		c.mu.Unlock()
		cancel()
		all.Wait()
	})
}

func TestManyGatheredRenewalsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range gatherMost + 1 {
			all.Go(func() { c.gather(ctx, renewal(), 50, Gathered) })
		}
		synctest.Wait()
		queued, gathered := c.waiting()
		expect.That(t, queued == gatherMost && gathered == 1, "%d are queued and %d wait, want %d and 1", queued, gathered, gatherMost)
		time.Sleep(GatherFor)
		synctest.Wait()
		queued, gathered = c.waiting()
		expect.That(t, queued == gatherMost+1 && gathered == 0, "%d are queued and %d wait after the time, want all queued", queued, gathered)
		cancel()
		all.Wait()
	})
}

func TestWriteDoesNotWaitForGatheredRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { c.gather(ctx, renewal(), 50, Gathered) })
		synctest.Wait()
		all.Go(func() { c.commit(ctx, []fsm.Item{{KV: kv.KeyOp{Key: "k"}}}, 50, AtOnce) })
		synctest.Wait()
		queued, gathered := c.waiting()
		expect.That(t, queued == 1 && gathered == 1, "%d are queued and %d wait, want the write queued and the renewal not", queued, gathered)
		cancel()
		all.Wait()
	})
}

func TestRenewalIsNotGatheredWithoutBatching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{InFlight: 1, NoBatching: true, Nodes: port.NewNodes(nil, nil), Metrics: NewMetrics(prometheus.NewRegistry())})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { c.gather(ctx, renewal(), 50, Gathered) })
		synctest.Wait()
		queued, _ := c.waiting()
		expect.That(t, queued == 1, "%d are queued, want it queued at once", queued)
		cancel()
		all.Wait()
	})
}

func TestGatheredRenewalWhoseCallerGoesHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		ctx, cancel := context.WithTimeout(t.Context(), GatherFor/2)
		defer cancel()
		_, err := c.gather(ctx, renewal(), 50, Gathered)
		expect.That(t, errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, registry.ErrUnknownOutcome),
			"got %v, want the context's error: it certainly had no effect", err)
		time.Sleep(GatherFor)
		if b, _ := c.closeBatch(); b != nil {
			t.Errorf("%d calls were taken", len(b.calls))
		}
	})
}

func TestGatheredRenewalUnderWayWhoseCallerGoesIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		ctx, cancel := context.WithTimeout(t.Context(), 2*GatherFor)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := c.gather(ctx, renewal(), 50, Gathered)
			done <- err
		}()
		time.Sleep(GatherFor)
		synctest.Wait()
		b, _ := c.closeBatch()
		need.That(t, b != nil, "nothing was taken")
		expect.ErrorIs(t, <-done, registry.ErrUnknownOutcome, "got")
	})
}

func TestGatheredRenewalsEndWhenTheNodeStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		done := make(chan error, 1)
		go func() {
			_, err := c.gather(t.Context(), renewal(), 50, Gathered)
			done <- err
		}()
		synctest.Wait()
		began := time.Now()
		c.shut()
		if err := <-done; !errors.Is(err, registry.ErrClosed) || time.Since(began) > 0 {
			t.Errorf("got %v after %v, want ErrClosed at once", err, time.Since(began))
		}
		expect.ErrorIs(t, expect.Err(c.gather(t.Context(), renewal(), 50, Gathered)), registry.ErrClosed, "after the end: got")
		time.Sleep(2 * GatherFor)
	})
}

func TestWriteAfterAPauseWaitsUntilItsClientCanBeSeenToHaveGone(t *testing.T) {
	now := time.Now()
	var p pulse
	expect.Equal(t, p.grace(now), 0, "before the first beat:")
	for range 100 {
		p.beat(now)
		now = now.Add(20 * time.Millisecond)
	}
	expect.Equal(t, p.grace(now), 0, "without a pause:")
	now = now.Add(time.Minute)
	expect.Equal(t, p.grace(now), wakeGrace, "the first after a pause:")
	p.beat(now)
	expect.Equal(t, p.grace(now.Add(wakeGrace/4)), wakeGrace*3/4, "after the beat:")
	expect.Equal(t, p.grace(now.Add(wakeGrace)), 0, "when the time is over:")
}

// TestWriteDoesNotWaitForAWallClockThatIsSetBack: the time of the last pause is then in its future.
func TestWriteDoesNotWaitForAWallClockThatIsSetBack(t *testing.T) {
	now := time.Now()
	var p pulse
	p.beat(now)
	now = now.Add(time.Minute)
	p.beat(now) // after a pause
	back := setBack(now.Add(2*wakeGrace), time.Hour)
	step := back.Round(0).Sub(now.Round(0))
	need.That(t, step <= 0 && back.Sub(now) == 2*wakeGrace, "the clock was not set back: %v", step)
	expect.Equal(t, p.grace(back), 0, "a write waits for")
}

// setBack is a reading of a clock whose wall time was set back by whole seconds, while its monotonic time goes
// on. Package time has no other way to make one: the seconds are above the lowest 30 bits of its first field.
func setBack(t time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) -= uint64(by/time.Second) << 30
	return t
}
