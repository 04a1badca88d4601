package registry

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// leased returns an instance that renews at an interval and lives for a duration, both in seconds.
func leased(key Key, interval, duration int32) *Instance {
	in := instance(key, Up, 100)
	in.RenewalInterval, in.Duration = interval, duration
	return in
}

// One lease, by its own interval and duration: when it begins to count, and how long it is fresh.
func TestFreshnessOfOneLease(t *testing.T) {
	tests := []struct {
		name               string
		interval, duration int32 // s
		youth, fresh       int64 // ms
	}{
		{"the usual lease: two missed renewals of three", 30, 90, 30_000, 60_000},
		{"a quick one", 1, 3, 1000, 2000},
		{"a quick renewal of a long lease", 5, 90, 5000, 10_000},
		{"two intervals exceed two thirds of the duration", 40, 90, 30_000, 60_000},
		{"two intervals are the duration", 45, 90, 30_000, 60_000},
		{"two intervals exceed the duration: all of it", 46, 90, 30_000, 90_000},
		{"an interval above the duration", 300, 90, 30_000, 90_000},
		{"a duration that three does not divide", 10, 10, 3333, 10_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.register(leased(orders1, tt.interval, tt.duration))
			began := g.now.Lease
			at := func(ms int64) Figures {
				f := g.View().Freshness(began + ms)
				return Figures{Leases: f.Leases, Counted: f.Counted, Fresh: f.Fresh, Expired: f.Expired}
			}
			end := int64(tt.duration) * 1000
			for _, want := range []struct {
				ms      int64
				figures Figures
			}{
				{0, Figures{Leases: 1}},
				{tt.youth, Figures{Leases: 1}},
				{tt.youth + 1, Figures{Leases: 1, Counted: 1, Fresh: 1}},
				{tt.fresh, Figures{Leases: 1, Counted: 1, Fresh: 1}},
				{tt.fresh + 1, Figures{Leases: 1, Counted: 1, Expired: one(tt.fresh == end)}},
				{end, Figures{Leases: 1, Counted: 1, Fresh: one(tt.fresh == end)}},
				{end + 1, Figures{Leases: 1, Counted: 1, Expired: 1}},
			} {
				expect.Equal(t, at(want.ms), want.figures, "after %d ms:", want.ms)
			}
		})
	}
}

// Each lease's own interval counts, so that quick and slow clients are judged alike.
func TestFreshnessGoesByEachLeasesInterval(t *testing.T) {
	g := newRig(t)
	for i := range 10 {
		g.register(leased(Key{App: "QUICK", ID: fmt.Sprint(i)}, 1, 3))
		g.register(leased(Key{App: "SLOW", ID: fmt.Sprint(i)}, 30, 90))
	}
	renew := func(app string) {
		for i := range 10 {
			g.client(Renew{Key: Key{App: app, ID: fmt.Sprint(i)}})
		}
	}
	for second := range int64(120) {
		g.pass(1000)
		renew("QUICK")
		if second%30 == 29 {
			renew("SLOW")
		}
		f := g.View().Freshness(g.now.Lease)
		holds, why := g.View().Condition(f)
		need.That(t, !holds && f.Fresh == f.Counted, "after %d s: %+v, %s, want all fresh", second+1, f, why)
	}
	for range 3 { // the quick ones stop: they were due three times, the others not once
		g.pass(1000)
	}
	f := g.View().Freshness(g.now.Lease)
	holds, why := g.View().Condition(f)
	expect.That(t, holds && f.Counted == 20 && f.Fresh == 10, "got %+v, %s, want half of them not fresh", f, why)
}

// Instances that are removed on purpose, in steps of any size, are not a failure, and leave nothing behind that could
// drift (Netflix/eureka issue 1247).
func TestSelfPreservationStaysOffWhenCancelsShrinkTheRegistry(t *testing.T) {
	for _, step := range []int{1, 7, 40, 99} {
		t.Run(fmt.Sprintf("%d at once", step), func(t *testing.T) {
			g := running(t, 100, DefaultSettings())
			for alive := 100; alive > 0; {
				for range min(step, alive) {
					alive--
					g.client(Cancel{keyed(alive)})
				}
				g.live(alive, 60_000)
				v := g.View()
				op, ok := v.NextPreservation(g.now.Lease, v.Freshness(g.now.Lease))
				need.That(t, !ok, "%d alive: it goes to %s for %+v", alive, op.To, op.Figures)
			}
		})
	}
}

// After a fall that was evicted under a release, the rest is the new whole: self-preservation turns off, and protects
// the rest as it did the others. Upstream's threshold stays where it was.
func TestConditionFollowsThePresentLeases(t *testing.T) {
	g := running(t, 100, DefaultSettings())
	g.live(50, 3*60_000)
	v := g.View()
	holds, why := v.Condition(v.Freshness(g.now.Lease))
	need.That(t, holds, "half of them gone: %s, want it to hold", why)
	for g.round(seeded(1)) > 0 {
	}
	v = g.View()
	f := v.Freshness(g.now.Lease)
	holds, why = v.Condition(f)
	expect.That(t, !holds && f.Leases == 50, "%+v: %s, want it off", f, why)
	g.live(40, 3*60_000)
	v = g.View()
	holds, why = v.Condition(v.Freshness(g.now.Lease))
	expect.That(t, holds, "a fifth of the rest gone: %s, want it to hold", why)
}

func TestFreshnessByAppListsOverdueLeases(t *testing.T) {
	g := newRig(t)
	g.register(leased(Key{App: "QUIET", ID: "young"}, 30, 90))
	g.register(leased(orders2, 30, 90))
	g.pass(10_000)
	g.register(leased(orders1, 30, 90))
	g.register(leased(billing1, 30, 90))
	g.pass(75_000)
	g.client(Cancel{Key{App: "QUIET", ID: "young"}})
	g.register(leased(Key{App: "QUIET", ID: "young"}, 30, 90))
	g.client(Renew{Key: billing1})
	g.pass(10_000)
	want := []AppFreshness{
		{App: "BILLING", Leases: 1, Counted: 1, Fresh: 1},
		{App: "ORDERS", Leases: 2, Counted: 2, Expired: 1, Overdue: []Overdue{
			{Key: orders2, Silent: 95_000, Ends: -5000},
			{Key: orders1, Silent: 85_000, Ends: 5000},
		}},
		{App: "QUIET", Leases: 1},
	}
	equal := func(a, b AppFreshness) bool {
		return slices.Equal(a.Overdue, b.Overdue) && a.App == b.App &&
			[4]uint32{a.Leases, a.Counted, a.Fresh, a.Expired} == [4]uint32{b.Leases, b.Counted, b.Fresh, b.Expired}
	}
	got := g.View().FreshnessByApp(g.now.Lease)
	expect.That(t, slices.EqualFunc(got, want, equal), "got  %+v\nwant %+v", got, want)
}

// naive counts what Freshness counts, in thirds of a millisecond, so that nothing is rounded.
func naive(r *Registry, now int64) Figures {
	var f Figures
	for _, l := range r.handles.leases {
		if l == nil || l.Owner != "" || l.Permanent {
			continue
		}
		f.Leases++
		f.Expired += one(now > r.leaseEndsAt(l))
		interval, duration := 3000*int64(l.Interval), 3000*int64(l.Duration)
		if 3*(now-l.BeganLease) <= min(interval, duration/3) {
			continue
		}
		f.Counted++
		within := min(2*interval, duration*2/3)
		if 2*interval > duration {
			within = duration
		}
		f.Fresh += one(3*(now-r.renewed(l).Lease) <= within)
	}
	return f
}

func TestFreshnessIsWhatTheRuleSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		now := Stamp{Lease: 1000, Wall: startOfWall}
		for _, s := range drawSteps.Draw(t, "steps") {
			now.Lease, now.Wall = now.Lease+s.pass, now.Wall+s.pass
			s.apply(r, now)
			v := r.View()
			got, want := v.Freshness(now.Lease), naive(r, now.Lease)
			got.Renewals, got.Threshold = 0, 0 // upstream's
			need.Equal(t, got, want, "at %d:", now.Lease)
			var sum Figures
			for _, a := range v.FreshnessByApp(now.Lease) {
				sum.Leases, sum.Counted = sum.Leases+a.Leases, sum.Counted+a.Counted
				sum.Fresh, sum.Expired = sum.Fresh+a.Fresh, sum.Expired+a.Expired
				overdue := a.Counted - a.Fresh
				need.That(t, uint32(len(a.Overdue)) == min(overdue, overdueShown), "at %d: %+v, want %d overdue", now.Lease, a, overdue)
			}
			need.That(t, sum == got, "at %d: %+v by application, want %+v", now.Lease, sum, got)
		}
	})
}

func TestCondition(t *testing.T) {
	with := func(change func(s *Settings)) Settings {
		s := DefaultSettings()
		change(&s)
		return s
	}
	usual := DefaultSettings()
	upstream := with(func(s *Settings) { s.Expectation = true })
	tests := []struct {
		name     string
		settings Settings
		figures  Figures
		want     bool
		reason   string
	}{
		{"no lease", usual, Figures{}, false, "no lease is older"},
		{"all young", usual, Figures{Leases: 50}, false, "no lease is older"},
		{"all fresh", usual, Figures{Counted: 20, Fresh: 20}, false, "20 of 20 leases were renewed in time, above the threshold of 0.85"},
		{"at the threshold", usual, Figures{Counted: 20, Fresh: 17}, true, "17 of 20 leases were renewed in time, not above the threshold of 0.85"},
		{"just above the threshold", usual, Figures{Counted: 20, Fresh: 18}, false, "18 of 20"},
		{"just above the threshold, without a rounding error", usual, Figures{Counted: 4_000_000_000, Fresh: 3_400_000_001}, false, ""},
		{"at the threshold, without a rounding error", usual, Figures{Counted: 4_000_000_000, Fresh: 3_400_000_000}, true, ""},
		{"none fresh", usual, Figures{Counted: 20}, true, "0 of 20"},
		{"a population of 9", usual, Figures{Leases: 40, Counted: 9}, false, "0 of 9 leases were renewed in time, too few for self-preservation, which needs 10"},
		{"a population of 10", usual, Figures{Leases: 40, Counted: 10}, true, "0 of 10"},
		{"no least population, no lease", with(func(s *Settings) { s.Population = 0 }), Figures{}, false, "no lease is older"},
		{"no least population, one", with(func(s *Settings) { s.Population = 0 }), Figures{Counted: 1}, true, "0 of 1"},
		{"threshold 0, some fresh", with(func(s *Settings) { s.Threshold = 0 }), Figures{Counted: 20, Fresh: 1}, false, "above the threshold of 0"},
		{"threshold 0, none fresh", with(func(s *Settings) { s.Threshold = 0 }), Figures{Counted: 20}, true, "not above the threshold of 0"},
		{"threshold 1, all fresh", with(func(s *Settings) { s.Threshold = Whole }), Figures{Counted: 20, Fresh: 20}, true, "not above the threshold of 1"},
		{"switched off", with(func(s *Settings) { s.SelfPreservation = false }), Figures{Counted: 20}, false, "switched off; 0 of 20"},
		{"switched off, upstream's formula", with(func(s *Settings) { s.SelfPreservation, s.Expectation = false, true }), Figures{Counted: 20}, false, "switched off"},
		{"upstream: fewer renewals", upstream, Figures{Counted: 20, Fresh: 20, Renewals: 33, Threshold: 34}, true, "33 renewals in the last minute are not more than the threshold of 34"},
		{"upstream: as many", upstream, Figures{Counted: 20, Fresh: 20, Renewals: 34, Threshold: 34}, true, "34 renewals in the last minute are not more than"},
		{"upstream: more", upstream, Figures{Counted: 20, Renewals: 35, Threshold: 34}, false, "35 renewals in the last minute are more than the threshold of 34"},
		{"upstream: a threshold of 0", upstream, Figures{Renewals: 10}, true, "a threshold of 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.Configure(tt.settings)
			holds, reason := g.View().Condition(tt.figures)
			expect.That(t, holds == tt.want && strings.Contains(reason, tt.reason), "got %t, %q, want %t, %q", holds, reason, tt.want, tt.reason)
		})
	}
}

// seeded draws as a proposer does, but the same numbers in every run.
func seeded(seed uint64) func(k int) int { return rand.New(rand.NewPCG(seed, 0)).IntN }

// halfDead returns a rig with 20 leases, 10 of which have ended.
func halfDead(t *testing.T, s Settings) *rig {
	g := newRig(t)
	g.Configure(s)
	for i := range 20 {
		g.register(instance(Key{App: "ORDERS", ID: fmt.Sprintf("orders-%02d", i)}, Up, 100))
	}
	g.pass(45_000)
	for i := range 10 {
		g.client(Renew{Key: Key{App: "ORDERS", ID: fmt.Sprintf("orders-%02d", 2*i)}})
	}
	g.pass(50_000)
	return g
}

// round evicts as many as one round may, and returns how many went.
func (g *rig) round(draw func(k int) int) int {
	victims := Victims(g.Expired(g.now.Lease, 1000), g.View().RoundLimit(0), draw)
	return g.client(Evict{Epoch: g.Epoch(), Items: victims}).Count
}

// The worked example from the literature, with upstream's numbers: limit = n - (int) (n * 0.85).
func TestRoundLimitIsTheShareOfTheRegistry(t *testing.T) {
	tests := []struct {
		name             string
		threshold        Share
		selfPreservation bool
		evicted, left    []int
	}{
		{"the worked example", 850_000, false, []int{3, 3, 3, 1, 0}, []int{17, 14, 11, 10, 10}},
		{"threshold 0: all at once", 0, false, []int{10, 0}, []int{10, 10}},
		{"threshold 0 with self-preservation: the default share", 0, true, []int{3, 3, 3, 1, 0}, []int{17, 14, 11, 10, 10}},
		{"threshold 1: none ever", Whole, false, []int{0, 0}, []int{20, 20}},
		{"half", 500_000, false, []int{10, 0}, []int{10, 10}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := DefaultSettings()
			s.Threshold, s.SelfPreservation = tt.threshold, tt.selfPreservation
			g := halfDead(t, s)
			draw := seeded(1)
			var evicted, left []int
			for range tt.evicted {
				evicted = append(evicted, g.round(draw))
				left = append(left, g.View().Len())
			}
			expect.That(t, slices.Equal(evicted, tt.evicted) && slices.Equal(left, tt.left),
				"rounds evict %v and leave %v, want %v and %v", evicted, left, tt.evicted, tt.left)
		})
	}
}

// With upstream's defaults the worked example cannot happen: 10 of 20 are below the threshold.
func TestRoundLimitOfTheWorkedExampleNeedsSelfPreservationOff(t *testing.T) {
	for _, expectation := range []bool{false, true} {
		s := DefaultSettings()
		s.Expectation = expectation
		g := halfDead(t, s)
		v := g.View()
		op, ok := v.NextPreservation(g.now.Lease, v.Freshness(g.now.Lease))
		expect.That(t, ok && op.To == PreservationOn, "expectation %t: got %+v %t, want self-preservation on", expectation, op, ok)
	}
}

func TestVictimsAreDifferentOnesOfTheDue(t *testing.T) {
	g := halfDead(t, DefaultSettings())
	due := g.Expired(g.now.Lease, 1000)
	known := slices.Clone(due)
	var asked []int
	draw := seeded(7)
	victims := Victims(due, g.View().RoundLimit(0), func(k int) int {
		asked = append(asked, k)
		return draw(k)
	})
	want := []int{10, 9, 8}
	expect.That(t, slices.Equal(asked, want), "drawn from %v, want %v: a partial Knuth shuffle", asked, want)
	seen := map[Handle]bool{}
	for _, item := range victims {
		expect.That(t, !seen[item.Handle] && slices.Contains(known, item), "victim %v is there twice, or is not due", item)
		seen[item.Handle] = true
	}
}

// Over many rounds each application loses in proportion to its share of the due leases, in whatever order they ended.
func TestVictimsAreDrawnFromApplicationsByTheirShare(t *testing.T) {
	const rounds = 3000
	sizes := map[string]int{"LARGE": 60, "MIDDLE": 30, "SMALL": 10}
	g := newRig(t)
	app := map[Handle]string{}
	for _, name := range []string{"LARGE", "MIDDLE", "SMALL"} {
		for i := range sizes[name] {
			app[g.register(instance(Key{App: name, ID: fmt.Sprint(i)}, Up, 100)).Handle] = name
			g.pass(1)
		}
	}
	g.pass(200_000)
	v := g.View()
	lost := map[string]int{}
	for seed := range uint64(rounds) {
		victims := Victims(g.Expired(g.now.Lease, 1000), v.RoundLimit(0), seeded(seed))
		need.That(t, len(victims) == 15, "%d victims, want 15 of 100", len(victims))
		for _, item := range victims {
			lost[app[item.Handle]]++
		}
	}
	for name, size := range sizes {
		share := float64(size) / 100
		got := float64(lost[name]) / (15 * rounds)
		expect.That(t, got >= share-0.01 && got <= share+0.01, "%s lost %.3f of all, want its share of %.2f", name, got, share)
	}
}
