package registry

import (
	"fmt"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// (int) (clients * (60.0 / interval) * threshold), with upstream's examples.
func TestExpectationThresholdFormula(t *testing.T) {
	tests := []struct {
		clients, interval uint32
		threshold         Share
		want              uint32
	}{
		{0, 30, 850_000, 0},
		{1, 30, 850_000, 1},
		{2, 30, 850_000, 3},
		{10, 30, 850_000, 17},
		{20, 30, 850_000, 34},
		{100, 30, 850_000, 170},
		{100, 0, 850_000, 170}, // counts as 30
		{100, 10, 850_000, 510},
		{100, 60, 850_000, 85},
		{100, 45, 850_000, 113}, // 113.33
		{1, 60, 850_000, 0},
		{100, 30, 0, 0},
		{100, 30, 1_000_000, 200},
		{7, 7, 333_333, 19}, // 19.99998
		{100_000, 1, 850_000, 5_100_000},
	}
	for _, tt := range tests {
		s := Settings{ExpectedInterval: tt.interval, Threshold: tt.threshold}
		expect.Equal(t, renewalThreshold(s, tt.clients), tt.want, "%d clients, every %d s, %s:", tt.clients, tt.interval, tt.threshold)
	}
}

// keyed names the i-th of many instances.
func keyed(i int) Key { return Key{App: "ORDERS", ID: fmt.Sprintf("orders-%03d", i)} }

// running is a rig with n leases that its registry expects, at the beginning of a minute.
func running(t *testing.T, n int, s Settings) *rig {
	g := newRig(t)
	g.Configure(s)
	for i := range n {
		g.register(instance(keyed(i), Up, 100))
	}
	g.now.Lease = 2 * s.ExpectationUpdate
	g.Advance(g.now)
	g.renewAll(n)
	return g
}

// renewAll renews the first n instances now.
func (g *rig) renewAll(n int) {
	for i := range n {
		g.client(Renew{Key: keyed(i)})
	}
}

// live passes a time in which the first n instances renew every 30 s.
func (g *rig) live(n int, ms int64) {
	for range ms / 30_000 {
		g.pass(30_000)
		g.renewAll(n)
	}
}

func (g *rig) wantClients(what string, want uint32) {
	g.t.Helper()
	if got := g.View().Expectation().Clients; got != want {
		g.t.Errorf("%s: %d clients are expected, want %d", what, got, want)
	}
}

func TestExpectationFollowsRegistrationsAndRemovals(t *testing.T) {
	g := newRig(t)
	g.wantClients("at the start, as in a Spring server without peers", 1)
	g.register(instance(orders1, Up, 100))
	g.register(instance(orders2, Up, 100))
	g.wantClients("two registered", 3)
	g.register(instance(orders1, Up, 200))
	g.wantClients("one registered again", 3)
	g.client(Cancel{orders1})
	g.client(Cancel{orders1})
	g.wantClients("one canceled, twice", 2)
	g.pass(100_000)
	res := g.client(Evict{Epoch: g.Epoch(), Items: g.Expired(g.now.Lease, 10)})
	need.That(t, res.Count == 1, "evicted %+v, want one", res)
	g.wantClients("one evicted", 1)
}

// A server that expects no client expects none more after a registration, until it counts.
func TestExpectationOfNoClientWaitsForTheNextCount(t *testing.T) {
	g := newRig(t)
	f := g.Freeze()
	f.Expectation.Clients = 0
	thawed := need.Got(Thaw(f))(t)
	g.Registry = thawed
	g.register(instance(orders1, Up, 100))
	g.wantClients("registered", 0)
	g.client(Cancel{orders1})
	g.wantClients("canceled: not below 0", 0)
	g.register(instance(orders1, Up, 100))
	g.now.Lease = DefaultSettings().ExpectationUpdate
	g.Advance(g.now)
	g.wantClients("counted", 1)
}

// A fall by more than the threshold's share is never followed while self-preservation is on: the
// expectation drifts away from the truth (Netflix/eureka issue 1247).
func TestExpectationIsCountedEvery15Minutes(t *testing.T) {
	const update = 15 * 60 * 1000
	tests := []struct {
		name             string
		selfPreservation bool
		expected, leases int
		want             uint32
	}{
		{"a rise", true, 100, 130, 130},
		{"a fall of 14 %", true, 100, 86, 86},
		{"a fall of 15 %: not above the share", true, 100, 85, 100},
		{"a fall of half", true, 100, 50, 100},
		{"a fall of half, self-preservation off", false, 100, 50, 50},
		{"a fall to none, self-preservation off", false, 100, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := DefaultSettings()
			s.SelfPreservation = tt.selfPreservation
			g := newRig(t)
			g.Configure(s)
			for i := range tt.leases {
				g.register(instance(keyed(i), Up, 100))
			}
			f := g.Freeze()
			f.Expectation.Clients = uint32(tt.expected)
			thawed := need.Got(Thaw(f))(t)
			g.Registry = thawed
			for round := range int64(3) {
				g.now.Lease = (round+1)*update - 1
				g.Advance(g.now)
				if round == 0 {
					g.wantClients("before the time", uint32(tt.expected))
				}
				g.pass(1)
				g.Advance(g.now)
				g.wantClients("at the time", tt.want)
			}
		})
	}
}

// Evictions lower the expectation, so that a slow decay escapes upstream's self-preservation, while
// a fall that nothing evicts is not followed.
func TestExpectationDriftsAsUpstreams(t *testing.T) {
	s := DefaultSettings()
	s.Expectation = true

	t.Run("evictions lower it", func(t *testing.T) {
		g := running(t, 100, s)
		alive := 100
		for range 30 { // a tenth of what is left goes, and is evicted, each 5 minutes
			alive -= alive / 10
			g.live(alive, 5*60_000)
			holds, why := g.View().Condition(g.View().Freshness(g.now.Lease))
			need.That(t, !holds, "%d alive: self-preservation is on: %s", alive, why)
			g.round(seeded(1))
		}
		expect.That(t, alive <= 20 && g.View().Len() == alive,
			"%d alive, %d registered, want at most 20, and none of the dead", alive, g.View().Len())
		g.wantClients("after all evictions", uint32(alive))
	})

	t.Run("a fall is never followed", func(t *testing.T) {
		g := running(t, 100, s)
		for round := range 12 { // three hours
			g.live(80, 15*60_000)
			v := g.View()
			holds, why := v.Condition(v.Freshness(g.now.Lease))
			need.That(t, holds, "round %d: self-preservation is off: %s", round, why)
			g.wantClients("a fifth is gone", 100)
		}
	})

	t.Run("graceful cancels are followed by one each", func(t *testing.T) {
		g := running(t, 100, s)
		for i := range 50 {
			g.client(Cancel{keyed(99 - i)})
		}
		g.wantClients("half of them canceled", 50)
	})
}

func TestExpectationCountsRenewalsOfTheLastCompleteMinute(t *testing.T) {
	g := newRig(t)
	g.now.Lease = minute
	g.register(instance(orders1, Up, 100))
	renew := func(at int64, n int) {
		g.now.Lease = at
		for range n {
			g.client(Renew{Key: orders1})
		}
	}
	want := func(at int64, renewals, sliding uint32) {
		t.Helper()
		g.now.Lease = at
		g.Advance(g.now)
		e := g.View().Expectation()
		expect.That(t, e.Renewals == renewals && e.Sliding == sliding,
			"at %d ms: %d renewals, %d in 60 s, want %d and %d", at, e.Renewals, e.Sliding, renewals, sliding)
	}
	renew(minute+1000, 4)
	want(minute+59_999, 0, 4) // nothing in the first minute
	renew(2*minute, 2)
	want(2*minute, 4, 6)
	want(2*minute+30_000, 4, 4)
	want(2*minute+59_999, 4, 2)
	want(3*minute, 2, 2)
	want(3*minute+45_000, 2, 0)
	want(5*minute, 0, 0)
	renew(5*minute, 3)
	want(9*minute, 0, 0)
}

// What is not a renewal, or is refused, does not count.
func TestExpectationCountsRenewalsOnly(t *testing.T) {
	g := newRig(t)
	h := g.register(instance(orders1, Up, 100)).Handle
	g.register(instance(orders2, Unknown, 100))
	g.register(instance(orders1, Up, 100))
	g.client(Renew{Key: orders1})
	g.client(Renew{Handle: h})
	g.peer(Renew{Key: orders1, LastDirty: 50}) // answered Older, and renewed
	g.client(Renew{Key: orders2})
	g.client(Renew{Key: billing1})
	g.client(Renew{Handle: Handle{Slot: 9, Gen: 9}})
	g.client(SetOverride{Key: orders1, Status: OutOfService})
	g.client(DeleteOverride{Key: orders1, Fallback: Up})
	g.client(UpdateMetadata{Key: orders1, Pairs: []Pair{{Key: "a", Value: "b"}}})
	g.pass(minute)
	g.Advance(g.now)
	got := g.View().Expectation().Renewals
	expect.That(t, got == 3, "%d renewals, want 3", got)
}

// A figure that nothing refreshed since is as old as it is: the leader counts at its running clock.
func TestExpectationFiguresChangeWhenTheMinuteIsOver(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.client(Renew{Key: orders1})
	v := g.View()
	for at, want := range map[int64]uint32{minute - 1: 0, minute: 1, 2*minute - 1: 1, 2 * minute: 0} {
		expect.Equal(t, v.Freshness(at).Renewals, want, "at %d:", at)
	}
}
