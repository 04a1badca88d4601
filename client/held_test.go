package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestALockThatSomebodyTookAwayIsLost: the server says so when it is given back.
func TestALockThatSomebodyTookAwayIsLost(t *testing.T) {
	coordinated(t, "", func(t *testing.T, s *coordinator, c *Client) {
		h := lockOf(t, c)
		s.mu.Lock()
		s.holders = nil
		s.mu.Unlock()
		for range 2 {
			expect.ErrorIs(t, h.Release(t.Context()), ErrLost, "release:")
		}
		got := testutil.ToFloat64(c.metrics.lost.WithLabelValues("lock"))
		expect.That(t, got == 1, "%v losses were counted, want 1", got)
		wantNobody(t, s)
	})
}

// TestAPausedHolderThatReleasesFirstFindsItsLockLost: it has not looked before.
func TestAPausedHolderThatReleasesFirstFindsItsLockLost(t *testing.T) {
	coordinated(t, "", func(t *testing.T, _ *coordinator, c *Client) {
		h := lockOf(t, c)
		h.keeper.mu.Lock()
		h.keeper.deadline = time.Now()
		h.keeper.mu.Unlock()
		if err := h.Release(t.Context()); !errors.Is(err, ErrLost) || !errors.Is(h.Err(), ErrLost) {
			t.Errorf("release: %v, and then %v, want %v", err, h.Err(), ErrLost)
		}
	})
}

// TestWhatIsReleasedHasNoGoroutines: who releases waits for what looks after the lock.
func TestWhatIsReleasedHasNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := need.Got(servers{"a": newCoordinator(t).answer}.client(t, "a").keep(t.Context(), SessionOptions{}))(t)
		ended := false
		if err := k.hold("lock", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		err := k.close(t.Context(), ErrReleased)
		expect.That(t, err == nil && ended, "closed with %v, ended %v, want it to wait", err, ended)
		expect.ErrorIs(t, k.hold("lock", func(context.Context) error { panic("started") }), ErrReleased, "holding after its end:")
	})
}
