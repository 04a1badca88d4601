package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestRoundsShareAnAttemptThatBeginsAfterTheyJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int64
		r := newRounds(func(context.Context) (int64, error) {
			n := attempts.Add(1)
			time.Sleep(time.Second)
			return n, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { r.run(ctx) })
		join := func(want int64) {
			all.Go(func() {
				got, err := r.join(ctx)
				expect.That(t, got == want && err == nil, "got attempt %d, error %v; want attempt %d", got, err, want)
			})
		}
		join(1)
		synctest.Wait() // the first attempt is running now
		for range 1000 {
			join(2)
		}
		time.Sleep(3 * time.Second)
		if got := attempts.Load(); got != 2 {
			t.Errorf("%d attempts served everybody, want 2", got)
		}
		cancel()
		all.Wait()
	})
}

func TestRoundsJoinEndsWithItsContext(t *testing.T) {
	r := newRounds(func(context.Context) (int, error) { return 0, nil })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.join(ctx)
	expect.That(t, errors.Is(err, context.Canceled), "got %v, want the context's error", err)
}

func TestNobodyWaitsForARoundThatIsNeverMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, stop := context.WithCancel(t.Context())
		r := newRounds(func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		go r.run(running)
		joined := make(chan error, 2)
		for range 2 { // one in the round that is being made, one in the next
			go func() {
				_, err := r.join(t.Context())
				joined <- err
			}()
			synctest.Wait()
		}
		stop()
		synctest.Wait()
		_, err := r.join(t.Context())
		for _, err := range []error{err, <-joined, <-joined} {
			expect.That(t, errors.Is(err, context.Canceled), "got %v, want that it was canceled", err)
		}
	})
}
