package expiry

import (
	"context"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// stock are the settings with every compatibility switch on.
func stock() registry.Settings {
	s := registry.DefaultSettings()
	s.Expectation, s.DoubledLease = true, true
	return s
}

func TestStockRenewedLeaseEndsTwoDurationsAfterItsRenewal(t *testing.T) {
	inBubble(t, stock(), true, func(g *evictionRig) {
		g.registerMany(40, 30, 90)
		g.pass(10 * time.Second)
		renewed, never := g.register("renewed", 30, 90, 30*time.Second), g.register("never", 30, 90, 0)
		g.pass(130 * time.Second)
		g.silence(renewed) // after renewals at 40, 70, 100 and 130 s
		g.pass(10 * time.Minute)
		// Two durations after 130 s are 310 s; upstream's timer fires every 60 s.
		g.wantGone(renewed, 6*time.Minute-ClockInterval)
		// One duration after 10 s.
		g.wantGone(never, 2*time.Minute-ClockInterval)
		expect.That(t, len(g.evictedAt) == 2, "gone are %v, want the two silent ones", g.evictedAt)
	})
}

func TestStockFirstRoundComesOneIntervalAfterOpening(t *testing.T) {
	settings := stock()
	settings.SelfPreservation = false
	inBubble(t, settings, true, func(g *evictionRig) {
		dead := g.register("dead", 1, 3, 0)
		g.pass(30 * time.Second)
		g.wantNoneEvicted()
		g.lose()
		g.lead()
		reopened := time.Since(g.begun)
		g.pass(61 * time.Second)
		g.wantGone(dead, reopened+time.Minute-ClockInterval)
	})
}

func TestStockTimerCompensatesForLateRuns(t *testing.T) {
	var timer upstreamTimer
	for _, run := range []struct{ at, want int64 }{{0, 0}, {60_000, 0}, {120_010, 10}, {179_900, 0}} {
		got := timer.run(run.at)
		expect.That(t, got == run.want, "run at %d ms: compensation %d ms, want %d ms", run.at, got, run.want)
	}
}

func TestStockCompensationIsGrantedToEveryLease(t *testing.T) {
	settings := stock()
	settings.SelfPreservation = false
	inBubble(t, settings, true, func(g *evictionRig) {
		g.register("alive", 30, 90, 30*time.Second)
		g.pass(70 * time.Second) // the first run is at 60 s
		keys := g.registerMany(10, 30, 55)
		g.silence(keys...) // they end at 125 s
		g.pass(49 * time.Second)
		confirm := g.evictor.Confirm
		g.evictor.Confirm = func(context.Context) bool { return false } // the run of 120 s cannot take place
		time.Sleep(time.Second)                                         // a stall
		g.pass(10 * time.Second)
		g.evictor.Confirm = confirm
		g.pass(45 * time.Second)
		g.wantNoneEvicted() // the run at about 130 s granted 10 s
		g.pass(30 * time.Second)
		expect.That(t, len(g.evictedAt) != 0, "no lease went with the run that came in time")
	})
}

func TestStockExpectationDoesNotFollowALargeFall(t *testing.T) {
	inBubble(t, stock(), true, func(g *evictionRig) {
		keys := g.registerMany(100, 30, 90)
		g.pass(10 * time.Minute)
		g.wantState(registry.PreservationOff)
		g.silence(keys[:20]...)
		g.pass(2 * time.Hour)
		g.wantNoneEvicted()
		g.wantState(registry.PreservationOn)
		got := g.machine.View().Expectation()
		want := (registry.Expectation{Clients: 100, Threshold: 170, Renewals: 160})
		expect.That(t, got.Clients == want.Clients && got.Threshold == want.Threshold && got.Renewals == want.Renewals && !got.Allows,
			"expectation %+v, want %+v: it still waits for those that are gone", got, want)
	})
}

func TestStockStandaloneServerNeverExpiresItsOnlyApplication(t *testing.T) {
	inBubble(t, stock(), true, func(g *evictionRig) {
		key := g.register("only", 30, 90, 30*time.Second)
		g.pass(10 * time.Minute)
		got := g.machine.View().Expectation()
		expect.That(t, got.Clients == 2 && got.Threshold == 3 && got.Renewals == 2 && !got.Allows,
			"expectation %+v, want 2 clients, threshold 3, 2 renewals and no eviction", got)
		g.silence(key)
		g.pass(2 * time.Hour)
		g.wantNoneEvicted()
		g.wantState(registry.PreservationOn)
	})
}
