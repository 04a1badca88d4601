// Package wait is how clients, servers and loads wait: until a time has passed, until something is done, and between
// tries that fail.
//
// It starts no goroutine.
package wait

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// For waits for d. It returns false if ctx ends before.
func For(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Until waits until done is closed. The error says what was waited for, and why ctx ended before.
func Until(ctx context.Context, done <-chan struct{}, what string, args ...any) error {
	select {
	case <-done:
	case <-ctx.Done():
		if !Closed(done) {
			return Annotate(context.Cause(ctx), what, args)
		}
	}
	return nil
}

// Closed reports whether a channel is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Annotate prefixes an error with what was being done, unless that is "".
func Annotate(err error, what string, args []any) error {
	if err == nil || what == "" {
		return err
	}
	return fmt.Errorf(what+": %w", append(args, err)...)
}

// Either returns ctx with a second reason to end: the end of other.
func Either(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// ShortestRetry and LongestRetry bound the pause before the next try. The pause doubles with each failure and is
// drawn at random below that, so that the watchers of a dead server do not return in step.
const ShortestRetry, LongestRetry = 100 * time.Millisecond, 5 * time.Second

// Retry returns the pause after another failure, given the number of failures in a row before it.
func Retry(failures int) time.Duration {
	return rand.N(min(ShortestRetry<<min(failures, 10), LongestRetry))
}

// BackOff returns the pause, after a number of failures in a row, of something that is done once per interval: at
// most twice as long after each failure, up to ten intervals, and at least half of that.
func BackOff(interval time.Duration, failures int) time.Duration {
	longest := min(interval<<min(failures, 4), 10*interval)
	return longest/2 + rand.N(longest/2+1)
}

// Outage logs changes between success and failure, not each failure. It is for one goroutine at a time.
type Outage struct {
	Log     *slog.Logger
	failing bool
}

// Report logs that failures have begun, with the error, or are over. about has attributes for both.
func (o *Outage) Report(err error, begun, over string, about ...any) {
	switch failing := err != nil; {
	case failing && !o.failing:
		o.Log.Warn(begun, append(about, "err", err)...)
	case !failing && o.failing:
		o.Log.Info(over, about...)
	}
	o.failing = err != nil
}

// Pause waits a little, or until woken.
func Pause(ctx context.Context, woken <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-woken:
	case <-t.C:
	case <-ctx.Done():
	}
}

// Every calls do at each tick of an interval until ctx ends.
func Every(ctx context.Context, interval time.Duration, do func(now time.Time)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			do(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// Broadcast wakes all that wait.
type Broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// Wait returns a channel that is closed by the next fire.
func (b *Broadcast) Wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// Fire wakes all that wait now.
func (b *Broadcast) Fire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
