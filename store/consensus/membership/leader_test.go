package membership

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

func TestWhileLeadingRunsOnceInALeadershipAlthoughItsWorkEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := &LeaderState{Self: "n1.aa", Log: slog.New(slog.DiscardHandler)}
		var epochs []uint64
		go s.WhileLeading(ctx, func(_ context.Context, e registry.Epoch) { epochs = append(epochs, e.Index) })
		lead := func(index uint64) (lose func()) {
			held, lose := context.WithCancel(t.Context())
			s.Lead(NewLeadership(expiry.NewReign(registry.Epoch{Index: index}, 0, fsm.NewMachine().View()), held, time.Now()))
			synctest.Wait()
			return lose
		}
		lose := lead(1)
		s.Observe("a:1", "n1.aa") // news, but not of another leadership
		synctest.Wait()
		expect.Slice(t, epochs, []uint64{1}, "in one leadership: epochs")
		lose()
		lose = lead(2)
		expect.Slice(t, epochs, []uint64{1, 2}, "in two leaderships: epochs")
		lose()
		stop()
		synctest.Wait()
	})
}
