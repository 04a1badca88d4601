package consensus

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/leadership"
)

// What fails at once would else be asked for as often as the processor allows, of the leader too.
func TestRetryPausesBetweenItsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		const most = 2 * int(time.Second/store.RetryPause)
		tries := 0
		done := retry(ctx, &leadership.State{}, func(context.Context) error {
			if tries++; tries > most {
				stop() // time stands still in a bubble that is busy
			}
			return errors.New("refused")
		})
		expect.That(t, !done && tries >= 2 && tries <= most, "it tried %d times in a second (done: %v), want at most %d", tries, done, most)
	})
}
