package registry

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var (
	ann       = Act{Author: "ann", Reason: "maintenance"}
	allStates = []PreservationState{PreservationOff, PreservationOn, PreservationReleased, PreservationHeld}

	// Figures for which the default settings' condition holds, and for which it does not.
	bad  = Figures{Leases: 20, Counted: 20, Fresh: 8}
	good = Figures{Leases: 20, Counted: 20, Fresh: 20}
)

const (
	hour    = 60 * 60 * 1000
	holding = 30 * 60 * 1000 // the length of the hold that in makes
)

// in brings self-preservation into a state, as the log would.
func (g *rig) in(state PreservationState) {
	g.t.Helper()
	switch state {
	case PreservationOn:
		g.decide(bad)
	case PreservationReleased:
		g.decide(bad)
		g.client(SelfPreservation{To: PreservationReleased, By: ann})
	case PreservationHeld:
		g.client(SelfPreservation{To: PreservationHeld, For: holding, By: ann})
	}
	if got := g.View().Preservation().State; got != state {
		g.t.Fatalf("self-preservation is %s, want %s", got, state)
	}
}

// decide does what the leader does in a round with these figures, and returns the result.
func (g *rig) decide(f Figures) (op SelfPreservation, taken bool) {
	g.t.Helper()
	op, ok := g.View().NextPreservation(g.now.Lease, f)
	if !ok {
		return op, false
	}
	op.Epoch = g.Epoch()
	if res := g.client(op); res.Outcome != Done {
		g.t.Fatalf("%+v: %+v, want what was due to be done", op, res)
	}
	return op, true
}

// Every state and everything that can happen in it.
func TestSelfPreservation(t *testing.T) {
	const (
		off, on, released, held = PreservationOff, PreservationOn, PreservationReleased, PreservationHeld
		refused                 = PreservationState(99)
	)
	counted := func(f Figures, after int64) func(g *rig) Result {
		return func(g *rig) Result {
			g.pass(after)
			g.decide(f)
			return Result{}
		}
	}
	act := func(op SelfPreservation) func(g *rig) Result {
		return func(g *rig) Result {
			op.By = ann
			return g.client(op)
		}
	}
	tests := []struct {
		event string
		do    func(g *rig) Result
		want  [4]PreservationState // next state after off, on, released, held
	}{
		{"the condition holds", counted(bad, 0), [4]PreservationState{on, on, released, held}},
		{"the condition does not hold", counted(good, 0), [4]PreservationState{off, off, off, held}},
		{"the condition holds before the hold is over", counted(bad, holding-1), [4]PreservationState{on, on, released, held}},
		{"the condition holds when the hold is over", counted(bad, holding), [4]PreservationState{on, on, released, on}},
		{"the condition does not hold when the hold is over", counted(good, holding), [4]PreservationState{off, off, off, off}},
		{"the condition holds just within the bound", counted(bad, hour-1), [4]PreservationState{on, on, released, on}},
		{"the condition holds at the bound", counted(bad, hour), [4]PreservationState{on, released, released, on}},
		{"the condition does not hold at the bound", counted(good, hour), [4]PreservationState{off, off, off, off}},
		{"an operator releases", act(SelfPreservation{To: released}), [4]PreservationState{refused, released, refused, released}},
		{"an operator holds", act(SelfPreservation{To: held, For: 1000}), [4]PreservationState{held, held, held, held}},
		{"an operator holds, whatever he believes it to be", act(SelfPreservation{From: released, To: held, For: 1000}), [4]PreservationState{held, held, held, held}},
		{"an operator holds for a week", act(SelfPreservation{To: held, For: maxHold}), [4]PreservationState{held, held, held, held}},
		{"an operator holds for longer", act(SelfPreservation{To: held, For: maxHold + 1}), [4]PreservationState{refused, refused, refused, refused}},
		{"an operator holds without a time", act(SelfPreservation{To: held}), [4]PreservationState{refused, refused, refused, refused}},
		{"an operator holds for a time before now", act(SelfPreservation{To: held, For: -1}), [4]PreservationState{refused, refused, refused, refused}},
		{"an operator switches off", act(SelfPreservation{To: off}), [4]PreservationState{refused, refused, refused, refused}},
		{"an operator switches on", act(SelfPreservation{To: on, For: 1000}), [4]PreservationState{refused, refused, refused, refused}},
	}
	for _, tt := range tests {
		for i, state := range allStates {
			t.Run(fmt.Sprintf("%s/%s", state, tt.event), func(t *testing.T) {
				g := newRig(t)
				g.in(state)
				before := g.View()
				res := tt.do(g)
				after := g.View()
				if tt.want[i] == refused {
					expect.That(t, res == (Result{Outcome: Refused}) && slices.Equal(after.Transitions(), before.Transitions()),
						"got %+v and %+v, want it refused", res, after.Preservation())
					return
				}
				got := after.Preservation().State
				expect.That(t, got == tt.want[i] && res.Outcome == Done, "got %s, %+v, want %s", got, res, tt.want[i])
				expect.That(t, after.Index() == before.Index() && res.Index == 0, "it took an index: %d, %d", after.Index(), res.Index)
			})
		}
	}
}

func TestSelfPreservationTransitionsHaveAuthorTimeReasonAndEnd(t *testing.T) {
	g := newRig(t)
	start := g.now
	g.decide(bad)
	g.pass(1000)
	g.client(SelfPreservation{To: PreservationReleased, By: ann})
	g.pass(1000)
	g.client(SelfPreservation{To: PreservationHeld, For: 5000, By: ann, Figures: good})
	g.pass(5000)
	g.decide(good)
	at := func(ms int64) Stamp { return Stamp{Lease: start.Lease + ms, Wall: start.Wall + ms} }
	want := []Preservation{
		{State: PreservationOff, Since: at(7000), Figures: good},
		{State: PreservationHeld, Since: at(2000), Until: start.Lease + 7000, By: ann, Figures: good},
		{State: PreservationReleased, Since: at(1000), By: ann},
		{State: PreservationOn, Since: start, Until: start.Lease + hour, Figures: bad},
	}
	expect.Slice(t, g.View().Transitions(), want, "got")
}

// Released means that self-preservation does not come on again for the same reason: the condition must have been
// false once.
func TestSelfPreservationReleasedComesOnOnlyAfterTheConditionWasFalse(t *testing.T) {
	releases := map[string]func(g *rig){
		"by an operator": func(g *rig) { g.client(SelfPreservation{To: PreservationReleased, By: ann}) },
		"by the bound": func(g *rig) {
			g.pass(hour)
			g.decide(bad)
		},
	}
	for name, release := range releases {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			g.in(PreservationOn)
			release(g)
			for range 50 {
				g.pass(hour / 2)
				op, ok := g.decide(bad)
				need.That(t, !ok, "it went to %s while the condition held", op.To)
			}
			states := []PreservationState{}
			for _, f := range []Figures{good, bad} {
				g.decide(f)
				states = append(states, g.View().Preservation().State)
			}
			expect.Slice(t, states, []PreservationState{PreservationOff, PreservationOn}, "when it was false, and then true:")
		})
	}
}

// A leader's proposal takes effect only under its own leadership, and in the state that it saw.
func TestSelfPreservationTransitionsOfTheLeaderAreFenced(t *testing.T) {
	epoch := Epoch{Term: 3, Index: 7}
	tests := []struct {
		name  string
		state PreservationState
		term  uint64
		op    SelfPreservation
		want  Outcome
	}{
		{"as it should be", PreservationOff, 3, SelfPreservation{Epoch: epoch, To: PreservationOn}, Done},
		{"entry of another term", PreservationOff, 4, SelfPreservation{Epoch: epoch, To: PreservationOn}, Refused},
		{"epoch of another term", PreservationOff, 3, SelfPreservation{Epoch: Epoch{Term: 2, Index: 7}, To: PreservationOn}, Refused},
		{"another epoch of the term", PreservationOff, 3, SelfPreservation{Epoch: Epoch{Term: 3, Index: 6}, To: PreservationOn}, Refused},
		{"no epoch", PreservationOff, 0, SelfPreservation{To: PreservationOn}, Refused},
		{"an operator released it meanwhile", PreservationReleased, 3, SelfPreservation{Epoch: epoch, From: PreservationOn, To: PreservationOff}, Refused},
		{"an operator holds it meanwhile", PreservationHeld, 3, SelfPreservation{Epoch: epoch, From: PreservationOn, To: PreservationOff}, Refused},
		{"a hold that is not over", PreservationHeld, 3, SelfPreservation{Epoch: epoch, From: PreservationHeld, To: PreservationOff}, Refused},
		{"a bound that is not reached", PreservationOn, 3, SelfPreservation{Epoch: epoch, From: PreservationOn, To: PreservationReleased}, Refused},
		{"released without having been on", PreservationOff, 3, SelfPreservation{Epoch: epoch, To: PreservationReleased}, Refused},
		{"on without having been off", PreservationReleased, 3, SelfPreservation{Epoch: epoch, From: PreservationReleased, To: PreservationOn}, Refused},
		{"a hold of its own", PreservationOff, 3, SelfPreservation{Epoch: epoch, To: PreservationHeld, For: 1000}, Refused},
		{"no transition", PreservationOn, 3, SelfPreservation{Epoch: epoch, From: PreservationOn, To: PreservationOn}, Refused},
		{"a state that does not exist", PreservationOff, 3, SelfPreservation{Epoch: epoch, To: 9}, Refused},
		{"an operator's act under any leader", PreservationOff, 9, SelfPreservation{Epoch: Epoch{Term: 1, Index: 1}, To: PreservationHeld, For: 1000, By: ann}, Done},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.Establish(epoch, "c")
			g.in(tt.state)
			before := g.View().Transitions()
			res := g.Apply(g.now, tt.term, FromClient, tt.op)
			changed := len(g.View().Transitions()) > len(before)
			expect.That(t, res.Outcome == tt.want && changed == (tt.want == Done), "got %+v, transition %t, want %d", res, changed, tt.want)
		})
	}
}

func TestSelfPreservationKeepsTheLast50Transitions(t *testing.T) {
	g := newRig(t)
	var early *View
	for i := range 120 {
		g.pass(1)
		g.client(SelfPreservation{To: PreservationHeld, For: int64(i + 1), By: ann})
		if i == 59 {
			early = g.View()
		}
	}
	for v, newest := range map[*View]int64{early: 60, g.View(): 120} {
		got := v.Transitions()
		need.That(t, len(got) == 50, "%d transitions, want 50", len(got))
		for i, p := range got {
			expect.Equal(t, p.Until-p.Since.Lease, newest-int64(i), "transition %d is the hold of", i)
		}
	}
}

// A new leader's settings also apply to self-preservation that is already on.
func TestSelfPreservationThatIsOnFollowsTheSettings(t *testing.T) {
	with := func(change func(s *Settings)) Settings {
		s := DefaultSettings()
		change(&s)
		return s
	}
	tests := []struct {
		name     string
		settings Settings
		until    int64 // after it came on; 0: never
		next     [2]PreservationState
	}{ // next: with the condition true after 59 minutes, and after 61
		{"as before", DefaultSettings(), hour, [2]PreservationState{PreservationOn, PreservationReleased}},
		{"a shorter bound", with(func(s *Settings) { s.Bound = 1000 }), 1000, [2]PreservationState{PreservationReleased, PreservationReleased}},
		{"a longer bound", with(func(s *Settings) { s.Bound = 2 * hour }), 2 * hour, [2]PreservationState{PreservationOn, PreservationOn}},
		{"no bound", with(func(s *Settings) { s.Bound = 0 }), 0, [2]PreservationState{PreservationOn, PreservationOn}},
		{"upstream's formula has no bound", with(func(s *Settings) { s.Expectation = true }), 0, [2]PreservationState{PreservationOn, PreservationOn}},
		{"switched off", with(func(s *Settings) { s.SelfPreservation = false }), hour, [2]PreservationState{PreservationOff, PreservationOff}},
	}
	for _, tt := range tests {
		for i, after := range []int64{59 * minute, 61 * minute} {
			t.Run(fmt.Sprintf("%s, after %d min", tt.name, after/minute), func(t *testing.T) {
				g := newRig(t)
				g.in(PreservationOn)
				before := g.View()
				since := before.Preservation()
				g.Configure(tt.settings)
				want := since
				want.Until = 0
				if tt.until > 0 {
					want.Until = since.Since.Lease + tt.until
				}
				expect.Equal(t, g.View().Preservation(), want, "got")
				expect.That(t, before.Preservation() == since, "a view from before changed: %+v", before.Preservation())
				g.pass(after / 2)
				g.Advance(g.now) // the clock moves by at most an hour
				g.pass(after / 2)
				g.decide(bad)
				expect.Equal(t, g.View().Preservation().State, tt.next[i], "then")
			})
		}
	}
}

func TestShareTextIsADecimalFraction(t *testing.T) {
	for text, want := range map[string]Share{"0": 0, "1": Whole, "1.0": Whole, "0.85": 850_000, ".5": 500_000, "0.3333335": 333_334, "0.9999994": 999_999} {
		var got Share
		err := got.UnmarshalText([]byte(text))
		expect.That(t, err == nil && got == want, "%q: %v, %v, want %v", text, got, err, want)
	}
	for _, text := range []string{"", "85", "-0.1", "1.0000001", "NaN", "0.5x", "0.12345678x", "1/2", "0.+5"} {
		got := Share(7)
		expect.That(t, got.UnmarshalText([]byte(text)) != nil && got == 7, "%q is read as %v", text, got)
	}
}

func TestShareOfIsRoundedDown(t *testing.T) {
	tests := []struct {
		share Share
		n     int
		want  int
	}{
		{850_000, 20, 17}, {850_000, 17, 14}, {850_000, 14, 11}, {850_000, 1, 0}, {850_000, 0, 0},
		{0, 20, 0}, {Whole, 20, 20}, {850_000, 100_000_000, 85_000_000},
	}
	for _, tt := range tests {
		expect.Equal(t, tt.share.of(tt.n), tt.want, "%s of %d:", tt.share, tt.n)
	}
}

// An entry of the log is never refused, so an invalid setting counts as the nearest valid one.
func TestConfigureClampsSettings(t *testing.T) {
	g := newRig(t)
	g.Configure(Settings{Threshold: Whole + 1, Bound: -1, ExpectationUpdate: -1})
	expect.Equal(t, g.View().Settings(), (Settings{Threshold: Whole}), "got")
	expect.OKf(t, expect.Err(Thaw(g.Freeze())), "thaw")
}

func TestConfigureAppliesAShorterUpdateIntervalAtOnce(t *testing.T) {
	g := newRig(t)
	for i := range 5 {
		g.register(instance(keyed(i), Up, 100))
	}
	s := DefaultSettings()
	s.ExpectationUpdate = 60_000
	g.Configure(s)
	g.pass(59_999)
	g.Advance(g.now)
	g.wantClients("before a minute", 6)
	g.pass(1)
	g.Advance(g.now)
	g.wantClients("after a minute", 5+1) // 5 is not above 0.85 of 6
	s.SelfPreservation = false
	g.Configure(s)
	g.pass(60_000)
	g.Advance(g.now)
	g.wantClients("after another, self-preservation off", 5)
}

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

// keyed returns the key of the i-th of many instances.
func keyed(i int) Key { return Key{App: "ORDERS", ID: fmt.Sprintf("orders-%03d", i)} }

// running returns a rig with n leases that its registry expects, at the beginning of a minute.
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

// live lets time pass while the first n instances renew every 30 s.
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

// A server that expects no clients expects none after a registration either, until it counts.
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

// A fall by more than the threshold's share is never followed while self-preservation is on: the expectation drifts
// away from the truth (Netflix/eureka issue 1247).
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

// Evictions lower the expectation, so a slow decay escapes upstream's self-preservation, while a fall without
// evictions is not followed.
func TestExpectationDriftsAsUpstreams(t *testing.T) {
	s := DefaultSettings()
	s.Expectation = true

	t.Run("evictions lower it", func(t *testing.T) {
		g := running(t, 100, s)
		alive := 100
		for range 30 { // every 5 minutes a tenth of the rest goes, and is evicted
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

// Anything that is not a renewal, or is refused, does not count.
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
	expect.Equal(t, g.View().Expectation().Renewals, 3, "renewals:")
}

// A figure that nothing has refreshed gets old: the leader counts by its running clock.
func TestExpectationFiguresChangeWhenTheMinuteIsOver(t *testing.T) {
	g := withOrders(t)
	g.client(Renew{Key: orders1})
	v := g.View()
	for at, want := range map[int64]uint32{minute - 1: 0, minute: 1, 2*minute - 1: 1, 2 * minute: 0} {
		expect.Equal(t, v.Freshness(at).Renewals, want, "at %d:", at)
	}
}
