package expiry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestEvictorEndsALeaseOneDurationAfterItsLastRenewal(t *testing.T) {
	tests := []struct {
		name               string
		interval, duration int32
		renewed            time.Duration // the last time, since the registration
	}{
		{"short lease, never renewed", 1, 3, 0},
		{"short lease", 1, 3, 4 * time.Second},
		{"ordinary lease", 30, 90, 60 * time.Second},
		{"long lease", 600, 3600, 1200 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
				g.pass(350 * time.Millisecond) // so that no lease ends when a round is due anyway
				start := time.Since(g.begun)
				key := g.register("i", tt.interval, tt.duration, time.Duration(tt.interval)*time.Second)
				g.pass(tt.renewed)
				g.silence(key)
				lease := time.Duration(tt.duration) * time.Second
				g.pass(lease + time.Second)
				g.wantGone(key, start+tt.renewed+lease)
			})
		})
	}
}

func TestEvictorEvictsAtMostTheShareInAnyInterval(t *testing.T) {
	settings := registry.DefaultSettings()
	settings.SelfPreservation = false
	inBubble(t, settings, false, func(g *evictionRig) {
		keys := g.registerMany(20, 1, 3)
		g.pass(10 * time.Second)
		// They end one after the other, 50 ms apart: each early enough to be noticed at once.
		dead := keys[:10]
		for _, k := range dead {
			g.silence(k)
			g.pass(50 * time.Millisecond)
		}
		g.pass(20 * time.Second)
		var at []time.Duration
		for _, k := range dead {
			gone, ok := g.evictedAt[k]
			need.That(t, ok, "%v is still there", k)
			at = append(at, gone)
		}
		slices.Sort(at)
		for i := 3; i < len(at); i++ { // of 20, at most 3 go in an interval
			within := at[i] - at[i-3]
			expect.That(t, within >= time.Second, "evictions at %v: four within %v, want at most three in an interval", at, within)
		}
		expect.That(t, len(g.evictedAt) == len(dead), "gone are %v, want only those that fell silent", g.evictedAt)
	})
}

func TestEvictorNoticesALoneCrashBetweenTwoRounds(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.registerMany(20, 1, 3)
		for i := range 10 {
			g.pass(1370 * time.Millisecond) // out of step with the rounds
			start := time.Since(g.begun)
			key := g.register(fmt.Sprintf("lone%d", i), 1, 3, 0)
			g.pass(5 * time.Second)
			g.wantGone(key, start+3*time.Second)
		}
	})
}

// A round walks all leases.
func TestEvictorHoldsARoundPerIntervalWhileNothingEnds(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.registerMany(20, 1, 3)
		rounds, expired := 0, g.evictor.Expired
		g.evictor.Expired = func(now int64, limit int) []registry.EvictItem {
			if limit > 1 { // otherwise it only asks whether there is one
				rounds++
			}
			return expired(now, limit)
		}
		g.pass(time.Minute)
		expect.That(t, rounds > 50 && rounds <= 60, "%d rounds in a minute", rounds)
	})
}

func TestEvictorNoticesCrashesInShortOrderEachAtOnce(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.registerMany(40, 1, 3) // the share is more than three
		g.pass(10 * time.Second)
		var keys []registry.Key
		var ends []time.Duration
		for i := range 3 {
			g.pass(230 * time.Millisecond)
			ends = append(ends, time.Since(g.begun)+3*time.Second)
			keys = append(keys, g.register(fmt.Sprintf("lone%d", i), 1, 3, 0))
		}
		g.pass(5 * time.Second)
		for i, key := range keys {
			g.wantGone(key, ends[i])
		}
	})
}

func TestEvictorProposesVictimsInEntriesOfBoundedSize(t *testing.T) {
	settings := registry.DefaultSettings()
	settings.SelfPreservation, settings.Threshold = false, 0
	inBubble(t, settings, false, func(g *evictionRig) {
		g.pass(time.Second)
		for i := range 2 * evictionBatch {
			g.register(fmt.Sprintf("i%d", i), 1, 3, 0)
		}
		g.register("last", 1, 3, 0)
		var sizes []int
		g.before = func(ops []registry.Op) error {
			if evict, ok := ops[0].(registry.Evict); ok {
				sizes = append(sizes, len(evict.Items))
			}
			return nil
		}
		g.pass(5 * time.Second)
		want := []int{evictionBatch, evictionBatch, 1}
		expect.That(t, slices.Equal(sizes, want), "entries with %v leases, want %v", sizes, want)
	})
}

func TestEvictorStopsARoundBetweenTwoEntriesAtAHold(t *testing.T) {
	settings := registry.DefaultSettings()
	settings.SelfPreservation, settings.Threshold = false, 0
	inBubble(t, settings, false, func(g *evictionRig) {
		g.pass(time.Second)
		for i := range evictionBatch + 1 {
			g.register(fmt.Sprintf("i%d", i), 1, 3, 0)
		}
		held := false
		g.before = func(ops []registry.Op) error {
			if _, ok := ops[0].(registry.Evict); ok && !held {
				held = true
				g.apply(hold(time.Minute))
			}
			return nil
		}
		g.pass(5 * time.Second)
		expect.Equal(t, len(g.evictedAt), evictionBatch, "the hold came before the second entry: leases that went:")
	})
}

func hold(d time.Duration) registry.SelfPreservation {
	return registry.SelfPreservation{To: registry.PreservationHeld, For: d.Milliseconds(), By: registry.Act{Author: "ann", Reason: "moving racks"}}
}

func TestEvictorEvictsNothingInAStateThatCouldNotBeLeft(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		keys := g.registerMany(20, 1, 3)
		g.pass(10 * time.Second)
		committed := errors.New("no majority")
		g.before = func(ops []registry.Op) error {
			if _, ok := ops[0].(registry.SelfPreservation); ok {
				return committed
			}
			return nil
		}
		g.silence(keys[:12]...)
		g.pass(30 * time.Second)
		g.wantState(registry.PreservationOff)
		g.wantNoneEvicted()
		expect.Equal(t, g.logged("level=WARN", "not committed", "no majority"), 1, "the failure was logged")
		committed = nil
		g.pass(2 * time.Second)
		g.wantState(registry.PreservationOn)
	})
}

func TestSelfPreservationIsBoundInTime(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		keys := g.registerMany(20, 1, 3)
		g.pass(10 * time.Second)
		g.silence(keys[:12]...)
		g.pass(5 * time.Second)
		on := g.machine.View().Preservation().Since.Lease
		g.wantState(registry.PreservationOn)
		g.pass(time.Hour - 10*time.Second)
		g.wantState(registry.PreservationOn)
		g.wantNoneEvicted()
		g.pass(20 * time.Second)
		expect.That(t, len(g.evictedAt) == 12, "gone are %v, want the twelve silent ones", g.evictedAt)
		transitions := g.machine.View().Transitions()
		i := slices.IndexFunc(transitions, func(p registry.Preservation) bool { return p.State == registry.PreservationReleased })
		need.That(t, i >= 0, "transitions %+v: want a release", transitions)
		after := transitions[i].Since.Lease - on
		expect.That(t, after >= time.Hour.Milliseconds() && after <= time.Hour.Milliseconds()+1100, "released after %d ms, want an hour", after)
	})
}

func TestEvictorKeepsLeasesRenewedRightAfterAPauseOfTheProcess(t *testing.T) {
	for _, frozen := range []time.Duration{600 * time.Millisecond, 4 * time.Second, time.Hour} {
		t.Run(frozen.String(), func(t *testing.T) {
			inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
				keys := g.registerMany(20, 1, 3)
				late := g.register("late", 1, 3, 0)
				g.pass(10500 * time.Millisecond)
				delete(g.evictedAt, late) // never renewed
				late = g.register("late", 1, 3, 0)
				g.pass(2800 * time.Millisecond)
				before := len(g.evictedAt)
				time.Sleep(frozen)
				g.pass(ClockInterval) // in which the evictor comes first
				g.resume(time.Second, append(keys, late)...)
				g.pass(5 * time.Second)
				expect.That(t, len(g.evictedAt) == before, "gone are %v", g.evictedAt)
			})
		})
	}
}

func TestEvictorLosesOneRoundByAPanic(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		key := g.register("i", 1, 3, 0)
		panics := 0
		g.before = func([]registry.Op) error {
			if panics++; panics <= 2 {
				panic("a defect")
			}
			return nil
		}
		g.pass(7 * time.Second)
		g.wantGone(key, 5*time.Second)
		got := g.metric("rollcall_store_eviction_panics_total", "")
		expect.That(t, got == 2, "%v panics counted, want 2", got)
		if got := g.logged("level=ERROR", "a defect"); got != 2 {
			t.Errorf("%d panics logged, want 2:\n%s", got, g.log)
		}
	})
}

func TestEvictorEvictsNoLeaseTwiceAtALeaderChangeInARound(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		key := g.register("i", 1, 3, 0)
		old := g.evictor
		refused := false
		g.before = func([]registry.Op) error {
			if g.evictor == old {
				refused = true
				g.lead() // the entry of the old leader comes after the new leader's first
			}
			return nil
		}
		g.pass(3500 * time.Millisecond)
		need.That(t, refused, "the old leader proposed nothing")
		g.wantNoneEvicted()
		established := time.Since(g.begun)
		g.pass(5 * time.Second)
		at, ok := g.evictedAt[key]
		expect.That(t, ok && at <= established+3*time.Second+2*ClockInterval, "gone at %v (%v), want within a grace of %v", at, ok, established)
		expect.Equal(t, g.metric("rollcall_store_evictions_total", ""), 1, "evictions counted:")
	})
}

func TestEvictorEndsOverridesAndQuarantinesAtTheirTime(t *testing.T) {
	for _, upstream := range []bool{false, true} {
		t.Run(fmt.Sprintf("upstream's timer %v", upstream), func(t *testing.T) {
			inBubble(t, registry.DefaultSettings(), upstream, func(g *evictionRig) {
				keys := g.registerMany(2, 1, 90)
				g.pass(5 * time.Second)
				g.apply(
					registry.SetOverride{Key: keys[0], Status: registry.OutOfService, For: 10_000},
					registry.Quarantine{Key: keys[1], For: 10_000},
				)
				overridden := func() bool {
					l, _ := g.machine.View().Lease(keys[0])
					return l.Instance.Overridden == registry.OutOfService
				}
				listed := func() bool {
					_, ok := g.machine.View().Lease(keys[1])
					return ok
				}
				g.pass(9 * time.Second)
				expect.That(t, overridden() && !listed(), "after 9 s: overridden %v, listed %v, want it so for 10 s", overridden(), listed())
				g.pass(2500 * time.Millisecond)
				expect.That(t, !overridden() && listed(), "after 11.5 s: overridden %v, listed %v, want neither in force", overridden(), listed())
			})
		})
	}
}

func TestEvictorEndsALeaseOfAnotherDatacenterThoughItCountsForNothing(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		i := instanceOf("A", "far", 3)
		g.applyFrom(registry.FromEureka, registry.Register{Instance: i})
		g.clients[i.Key()] = &rigClient{}
		g.pass(34 * time.Second)
		g.wantGone(i.Key(), 33*time.Second) // 30 s for the way of its renewals
		expect.Equal(t, g.metric("rollcall_self_preservation_leases", "all"), 0, "leases of this datacenter:")
	})
}

func TestClockGoesOnForAQuarantinedInstanceAlone(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		key := g.register("i", 1, 3, 0)
		g.apply(registry.Quarantine{Key: key, For: time.Hour.Milliseconds()})
		g.pass(4 * time.Second)
		g.wantGone(key, 3*time.Second)
	})
}

// registerOf registers an instance of another datacenter, which no client renews.
func (g *evictionRig) registerOf(dc, id string, duration int32) registry.Key {
	g.t.Helper()
	i := instanceOf("A", id, duration)
	g.applyFrom(registry.Origin{Kind: registry.RemoteDC, DC: dc}, registry.Register{Instance: i})
	g.clients[i.Key()] = &rigClient{}
	return i.Key()
}

// contact records that a datacenter was heard.
func (g *evictionRig) contact(dc string) {
	g.t.Helper()
	g.applyFrom(registry.Origin{Kind: registry.RemoteDC, DC: dc}, registry.Contact{DC: dc, Cut: 15_000})
}

func TestEvictorKeepsLeasesOfOtherDatacentersWhileTheyAreSpared(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		spared := map[string]bool{"dc2": true}
		g.spares = func(dc string, _ time.Duration, _ bool) bool { return spared[dc] }
		stays, goes, own := g.registerOf("dc2", "stays", 10), g.registerOf("dc3", "goes", 10), g.register("own", 1, 10, 0)
		g.contact("dc2")
		g.pass(5 * time.Minute)
		_, gone := g.evictedAt[stays]
		expect.That(t, !gone, "of the datacenter that is spared an instance went after %v", g.evictedAt[stays])
		for key, at := range map[registry.Key]time.Duration{own: 10 * time.Second, goes: 40 * time.Second} {
			got, ok := g.evictedAt[key]
			expect.That(t, ok && got > at && got <= at+time.Second+ClockInterval,
				"%v went after %v (%v), want it gone within an interval after %v", key, got, ok, at)
		}
		spared["dc2"] = false
		g.pass(2 * time.Second)
		_, gone = g.evictedAt[stays]
		expect.That(t, gone, "it is still there although it is not spared any more")
	})
}

func TestEvictorChargesTheShareForNoLeaseThatIsSpared(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.spares = func(string, time.Duration, bool) bool { return true }
		for i := range 30 {
			g.registerOf("dc2", fmt.Sprint("r", i), 5)
		}
		g.contact("dc2")
		g.pass(time.Minute) // they have ended
		var own []registry.Key
		for i := range 4 {
			own = append(own, g.register(fmt.Sprint("own", i), 1, 5, 0))
		}
		g.pass(5*time.Second + time.Second + 2*ClockInterval)
		expect.That(t, len(g.evictedAt) == len(own), "%d went in one interval, want the %d of this datacenter: their share is 6", len(g.evictedAt), len(own))
	})
}

func TestSparePolicyGetsTheTimeOfADatacentersSilence(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		type asked struct {
			silent time.Duration
			ok     bool
		}
		last := map[string]asked{}
		times := 0
		g.spares = func(dc string, silent time.Duration, ok bool) bool {
			last[dc] = asked{silent, ok}
			times++
			return true
		}
		for i := range 5 {
			g.registerOf("dc2", fmt.Sprint("a", i), 5)
			g.registerOf("never", fmt.Sprint("b", i), 5)
		}
		g.contact("dc2")
		g.pass(time.Minute)
		got := last["dc2"]
		expect.That(t, got.ok && got.silent >= 59*time.Second && got.silent <= time.Minute, "of a datacenter that was silent a minute ago it was told %+v", got)
		expect.Equal(t, last["never"], (asked{}), "of a datacenter that was never silent it was told")
		times = 0
		g.pass(10 * time.Second)
		expect.That(t, times == 2*10, "it was asked %d times in 10 rounds about 2 datacenters", times)
	})
}

func TestExpiryIsSuspendedUntilTheShortestGraceIsOver(t *testing.T) {
	type lease struct{ interval, duration int32 }
	tests := []struct {
		name   string
		leases []lease
		want   time.Duration // for so long
		began  int64         // the leadership, after the registrations
	}{
		{"nothing can end", nil, -1, 3000},
		{"one has had its grace", []lease{{30, 90}, {1, 3}}, -1, 6000},
		{"ordinary lease: an interval and five seconds", []lease{{30, 90}}, 35 * time.Second, 3000},
		{"short lease: its duration", []lease{{1, 3}}, 3 * time.Second, 3000},
		{"the shortest of several", []lease{{30, 90}, {10, 30}, {60, 180}}, 15 * time.Second, 3000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
				for i, l := range tt.leases {
					g.register(string(rune('a'+i)), l.interval, l.duration, 0)
				}
				v, established := g.machine.View(), tt.began
				end := established + tt.want.Milliseconds()
				expect.That(t, tt.want < 0 || allInGrace(v, established, end), "not suspended %v after the leadership began", tt.want)
				expect.That(t, !allInGrace(v, established, end+1), "still suspended more than %v after the leadership began", tt.want)
			})
		})
	}
}

func TestAQuarantinedLeaseIsWithinItsGraceToo(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.apply(registry.Quarantine{Key: g.register("i", 1, 3, 0), For: 60_000})
		v := g.machine.View()
		expect.That(t, allInGrace(v, 0, 3000) && !allInGrace(v, 0, 3001), "want it suspended for three seconds")
	})
}

// stock returns the settings with every compatibility switch on.
func stock() registry.Settings {
	s := registry.DefaultSettings()
	s.Expectation, s.DoubledLease = true, true
	return s
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
		expect.Equal(t, timer.run(run.at), run.want, "run at %d ms: compensation", run.at)
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
