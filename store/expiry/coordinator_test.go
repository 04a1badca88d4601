package expiry

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// rigSession is a session of a rig.
type rigSession struct {
	every time.Duration // between renewals; 0 if it is never renewed
	next  time.Time
	ended time.Duration // since begun; 0 while it lives
}

// coordinate makes the coordinator of a leadership.
func (g *evictionRig) coordinate() {
	if g.sessions == nil {
		g.sessions, g.endings = map[string]*rigSession{}, NewCoordinatorMetrics(g.metrics)
	}
	g.coordinator = &Coordinator{CoordinatorEnv: CoordinatorEnv{
		Clock:   func() (int64, int) { return g.clock.Read(time.Now()) },
		Confirm: func(context.Context) bool { g.tick(); return true },
		Due:     g.machine.KVDue,
		Apply: func(_ context.Context, ops ...kv.Op) ([]kv.Result, error) {
			if g.beforeKV != nil {
				if err := g.beforeKV(ops); err != nil {
					return nil, err
				}
			}
			return g.applyKV(ops...), nil
		},
		Log:     slog.New(slog.NewTextHandler(g.log, nil)),
		Metrics: g.endings,
	}}
}

func (g *evictionRig) applyKV(ops ...kv.Op) []kv.Result {
	g.t.Helper()
	items := make([]fsm.Item, len(ops))
	for i, op := range ops {
		items[i] = fsm.Item{KV: op}
	}
	return g.batch(items).KV
}

// session creates a session that is renewed at an interval, or never if it is 0.
func (g *evictionRig) session(n int, ttl, delay, every time.Duration) string {
	g.t.Helper()
	id := sessionIDOf(n)
	if got := g.applyKV(kv.CreateSession{ID: id, TTL: ttl.Milliseconds(), LockDelay: delay.Nanoseconds()})[0]; !got.OK {
		g.t.Fatalf("create session %d: %+v", n, got)
	}
	g.sessions[id] = &rigSession{every: every, next: time.Now().Add(every)}
	return id
}

// recordEnded records which sessions have ended, and renews the others.
func (g *evictionRig) recordEnded() {
	for id, s := range g.sessions {
		if found, _ := g.machine.KV().Session(id); found == nil && s.ended == 0 {
			s.ended = time.Since(g.begun)
		}
		if s.ended == 0 && s.every > 0 && !time.Now().Before(s.next) {
			s.next = s.next.Add(s.every)
			g.applyKV(kv.RenewSession{ID: id})
		}
	}
}

// wantEnded fails the test unless a session ended at a time since the beginning, or slightly later.
func (g *evictionRig) wantEnded(id string, at time.Duration) {
	g.t.Helper()
	got := g.sessions[id].ended
	if late := got - at; got == 0 || late < 0 || late > ClockInterval {
		g.t.Errorf("%s ended after %v, want just after %v", id, got, at)
	}
}

func (g *evictionRig) wantLive(ids ...string) {
	g.t.Helper()
	for _, id := range ids {
		if got := g.sessions[id].ended; got != 0 {
			g.t.Errorf("%s ended after %v, want it to live", id, got)
		}
	}
}

func TestCoordinatorEndsASessionWithinItsTTL(t *testing.T) {
	for _, ttl := range []time.Duration{10 * time.Second, 15 * time.Second, time.Hour} {
		t.Run(ttl.String(), func(t *testing.T) {
			inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
				g.pass(350 * time.Millisecond)
				silent := g.session(1, ttl, 0, 0)
				renewed := g.session(2, ttl, 0, ttl/2)
				none := g.session(3, 0, 0, 0)
				start := time.Since(g.begun)
				g.pass(3*ttl + 5*time.Second)
				g.wantEnded(silent, start+ttl)
				g.wantLive(renewed, none)
				g.sessions[renewed].every = 0
				last := g.sessions[renewed].next.Sub(g.begun) - ttl/2
				g.pass(2 * ttl)
				got := g.sessions[renewed].ended
				expect.That(t, got >= last+ttl && got <= last+ttl+2*ClockInterval, "renewed last at %v, ended at %v", last, got)
				if got := testutil.ToFloat64(g.coordinator.Metrics.Expired); got != 2 {
					t.Errorf("%v sessions counted as expired, want 2", got)
				}
			})
		})
	}
}

func TestCoordinatorEndsNothingAfterAStallBeforeClientsCouldRenew(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.pass(2 * time.Second)
		silent := g.session(1, 10*time.Second, 0, 0)
		g.pass(9800 * time.Millisecond)
		time.Sleep(time.Minute)
		back := time.Since(g.begun)
		g.pass(5 * time.Second)
		got := g.sessions[silent].ended - back
		expect.That(t, got >= returnTime && got <= returnTime+3*ClockInterval, "ended %v after the stall, want after %v", got, returnTime)
	})
}

func TestCoordinatorRepeatsAProposalThatFailsAndLogsItOnce(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.pass(2 * time.Second)
		id := g.session(1, 10*time.Second, 0, 0)
		g.beforeKV = func([]kv.Op) error { return errors.New("no majority") }
		g.pass(11 * time.Second)
		g.wantLive(id)
		expect.Equal(t, g.logged("the end of sessions or lock-delays was not committed"), 1, "logged")
		g.beforeKV = nil
		healed := time.Since(g.begun)
		g.pass(time.Second)
		g.wantEnded(id, healed)
	})
}

func TestCoordinatorEndsManySessionsInEntriesOfBoundedSize(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.pass(2 * time.Second)
		const sessions = 3*endingBatch + 1
		for i := range sessions {
			g.session(i, 10*time.Second, 0, 0)
		}
		proposed := 0
		g.beforeKV = func(ops []kv.Op) error {
			proposed += len(ops)
			expect.That(t, len(ops) <= endingBatch, "%d operations in one entry", len(ops))
			return nil
		}
		g.pass(11 * time.Second)
		for i := range sessions {
			g.wantEnded(sessionIDOf(i), 12*time.Second)
		}
		expect.That(t, proposed == sessions, "%d operations proposed for %d sessions", proposed, sessions)
	})
}

func TestSessionIsKeptByARenewalThatOvertakesItsEnd(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.pass(2 * time.Second)
		id := g.session(1, 10*time.Second, 0, 0)
		g.beforeKV = func([]kv.Op) error {
			g.beforeKV = nil
			g.applyKV(kv.RenewSession{ID: id})
			return nil
		}
		g.pass(19 * time.Second)
		g.wantLive(id)
		g.pass(5 * time.Second)
		expect.That(t, g.sessions[id].ended != 0, "it lives for ever")
	})
}

func TestCoordinatorLosesOneStepByAPanic(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.pass(2 * time.Second)
		id := g.session(1, 10*time.Second, 0, 0)
		g.beforeKV = func([]kv.Op) error {
			g.beforeKV = nil
			panic("a defect")
		}
		g.pass(11 * time.Second)
		if g.sessions[id].ended == 0 || testutil.ToFloat64(g.coordinator.Metrics.panics) != 1 {
			t.Errorf("ended after %v, %v panics counted", g.sessions[id].ended, testutil.ToFloat64(g.coordinator.Metrics.panics))
		}
	})
}

// registerCheck adds a service with a check that expects heartbeats.
func (g *evictionRig) registerCheck(id string, ttl, reap time.Duration) {
	g.t.Helper()
	i := instanceOf("WEB", id, 90)
	i.RenewalInterval = 30
	got := g.apply(registry.RegisterCatalog{
		Service:  &catalog.Service{Name: "web", ID: id, WeightPassing: 1, WeightWarning: 1},
		Instance: i,
		Checks:   []*catalog.Check{{ID: "service:" + id, Name: id, Service: id, Type: "ttl", TTL: ttl.Milliseconds(), ReapAfter: reap.Milliseconds()}},
	})[0]
	need.That(g.t, got.Outcome == registry.Done, "register %s: %+v", id, got)
}

func TestEvictorExpiresAChecksTTLWhileEvictionsAreWithheld(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.evictor.Interval = time.Minute // rounds are rare
		keys := g.registerMany(20, 1, 3)
		g.pass(2 * time.Minute)
		g.registerCheck("w", 10*time.Second, time.Minute)
		start := time.Since(g.begun)
		g.silence(keys...)
		g.session(1, 0, 0, 0)
		g.applyKV(kv.CreateSession{ID: sessionIDOf(2), ServiceChecks: []string{"service:w"}})
		g.sessions[sessionIDOf(2)] = &rigSession{}
		status := func() (catalog.CheckStatus, bool) {
			c, ok := g.machine.View().CheckOn("", "service:w")
			return c.Status, ok
		}
		g.pass(9 * time.Second)
		s, _ := status()
		expect.That(t, s == catalog.Passing, "the check is %d before its TTL has passed", s)
		g.pass(1200 * time.Millisecond)
		s, _ = status()
		expect.That(t, s == catalog.Critical, "the check is %d after its TTL has passed", s)
		g.wantEnded(sessionIDOf(2), start+10*time.Second)
		g.wantLive(sessionIDOf(1))
		_, there := status()
		need.That(t, there, "the service is gone already")
		g.pass(60 * time.Second)
		if _, there := g.machine.View().CheckOn("", "service:w"); there {
			t.Error("the service is there after its check was critical for long enough")
		}
	})
}

func TestEvictorExpiresNoCheckAfterAStallBeforeHeartbeatsCouldCome(t *testing.T) {
	inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
		g.pass(2 * time.Second)
		g.registerCheck("w", 10*time.Second, 0)
		g.pass(9800 * time.Millisecond)
		time.Sleep(time.Minute)
		g.pass(900 * time.Millisecond)
		beat := registry.SetCheck{Check: "service:w", TTL: true}
		c, _ := g.machine.View().CheckOn("", "service:w")
		need.That(t, c.Status == catalog.Passing, "the check is %+v", c)
		g.apply(beat)
		g.pass(5 * time.Second)
		c, _ = g.machine.View().CheckOn("", "service:w")
		expect.That(t, c.Status == catalog.Passing, "the check is %+v although a heartbeat came", c)
	})
}

func TestLeaseClock(t *testing.T) {
	begin := time.Now()
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	tests := []struct {
		name string
		do   func(c *Clock)
		at   time.Duration
		want int64
	}{
		{"stands still before a leadership", func(c *Clock) {}, time.Hour, 0},
		{"goes on from the base", func(c *Clock) { c.Start(7000, begin) }, 0, 7000},
		{"runs with the monotonic time", func(c *Clock) { c.Start(0, begin) }, 100 * time.Millisecond, 100},
		{"a pause is charged with one step at most", func(c *Clock) { c.Start(0, begin) }, time.Hour, 500},
		{"does not go back", func(c *Clock) {
			c.Start(0, begin)
			c.Read(at(300 * time.Millisecond))
		}, 100 * time.Millisecond, 300},
		{"stands still after a leadership", func(c *Clock) {
			c.Start(0, begin)
			c.Read(at(200 * time.Millisecond))
			c.Stop()
		}, 400 * time.Millisecond, 200},
		{"runs at most two seconds ahead of what was applied", func(c *Clock) {
			c.Start(0, begin)
			for d := time.Duration(0); d < 10*time.Second; d += 100 * time.Millisecond {
				c.Read(at(d))
			}
		}, 10 * time.Second, 2000},
		{"goes on when an entry was applied", func(c *Clock) {
			c.Start(0, begin)
			for d := time.Duration(0); d < 10*time.Second; d += 100 * time.Millisecond {
				c.Read(at(d))
			}
			c.Observe(2000)
		}, 10 * time.Second, 2100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var c Clock
			tt.do(&c)
			got, _ := c.Read(at(tt.at))
			expect.That(t, got == tt.want, "read at +%v: got %d ms, want %d ms", tt.at, got, tt.want)
			if got := c.Glance(); got != tt.want {
				t.Errorf("a glance after it: got %d ms, want %d ms", got, tt.want)
			}
		})
	}
}

func TestLeaseClockCountsWhatItLoses(t *testing.T) {
	begin := time.Now()
	var c Clock
	c.Start(0, begin)
	c.Read(begin.Add(400 * time.Millisecond))
	lost := c.lost.Load()
	expect.That(t, lost == 0, "lost %d ns without a pause", lost)
	c.Read(begin.Add(time.Hour))
	want := time.Hour - 900*time.Millisecond
	if lost := time.Duration(c.lost.Load()); lost != want {
		t.Errorf("lost %v with a pause, want %v", lost, want)
	}
}

func TestLeaseClockCountsStalls(t *testing.T) {
	begin := time.Now()
	var c Clock
	c.Start(0, begin)
	_, before := c.Read(begin.Add(100 * time.Millisecond))
	_, same := c.Read(begin.Add(200 * time.Millisecond))
	_, after := c.Read(begin.Add(900 * time.Millisecond))
	expect.That(t, same == before && after == before+1, "stalls %d, %d, %d: want one more only after the pause", before, same, after)
}

// The process gets a processor for only a part of each second.
func TestEvictorEndsOnlySilentLeasesThoughEachSecondStalls(t *testing.T) {
	tests := []struct {
		name         string
		stall, awake time.Duration
	}{
		{name: "600 ms", stall: 600 * time.Millisecond, awake: 400 * time.Millisecond},
		{name: "900 ms", stall: 900 * time.Millisecond, awake: 200 * time.Millisecond},
		{name: "5 s", stall: 5 * time.Second, awake: 300 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
				live := g.registerMany(20, 1, 5)
				g.pass(11 * time.Second)
				silent := g.register("silent", 1, 5, 0)
				held := g.session(1, 10*time.Second, 0, time.Second)
				mute := g.session(2, 10*time.Second, 0, 0)
				for range 60 {
					g.pass(tt.awake)
					time.Sleep(tt.stall)
				}
				if _, gone := g.evictedAt[silent]; !gone {
					t.Errorf("the silent instance is still there after %v", time.Since(g.begun))
				}
				expect.That(t, g.sessions[mute].ended != 0, "the silent session is still there after %v", time.Since(g.begun))
				for _, key := range live {
					at, gone := g.evictedAt[key]
					expect.That(t, !gone, "%v, which was renewed whenever the node ran, went after %v", key, at)
				}
				g.wantLive(held)
			})
		})
	}
}

func TestLeaseClockNeverChargesMoreThanItMay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Clock
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		begin := time.Now()
		now := begin // moves in whole ms, so that nothing is lost in rounding
		c.Start(base, now)
		value, applied, newest := base, base, now
		for range rapid.IntRange(1, 200).Draw(t, "readings") {
			now = now.Add(time.Duration(step(t)) * time.Millisecond)
			if rapid.Bool().Draw(t, "an entry was applied") {
				stamp := rapid.Int64Range(applied, value).Draw(t, "stamp")
				c.Observe(stamp)
				applied = stamp
			}
			got, _ := c.Read(now)
			passed := max(0, now.Sub(newest).Milliseconds())
			switch {
			case got < value:
				t.Fatalf("went back from %d to %d", value, got)
			case got-value > passed:
				t.Fatalf("added %d ms in %d ms", got-value, passed)
			case got-value > MaxStep.Milliseconds():
				t.Fatalf("added %d ms in one reading", got-value)
			case got > applied+maxLead.Milliseconds():
				t.Fatalf("%d ms with the newest entry at %d ms", got, applied)
			case got-base > newest.Sub(begin).Milliseconds()+passed:
				t.Fatalf("ran %d ms in %v", got-base, now.Sub(begin))
			}
			value = got
			if now.After(newest) {
				newest = now
			}
		}
	})
}

// step draws a time (ms) between two readings: mostly the usual one, but also pauses of any length, and readings that
// overtook each other.
func step(t *rapid.T) int64 {
	return rapid.OneOf(
		rapid.Int64Range(0, ClockInterval.Milliseconds()),
		rapid.Int64Range(-50, 2*MaxStep.Milliseconds()),
		rapid.Int64Range(0, time.Hour.Milliseconds()),
	).Draw(t, "step")
}

func TestLeaseClockIsNotMovedByReadingsWhileItStandsStill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Clock
		now := time.Now()
		c.Start(1000, now)
		c.Stop()
		for range rapid.IntRange(1, 20).Draw(t, "readings") {
			now = now.Add(time.Duration(step(t)) * time.Millisecond)
			got, _ := c.Read(now)
			need.That(t, got == 1000, "read %d ms of a clock that was stopped at 1000 ms", got)
		}
	})
}
