package registry

import (
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

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
		{"nobody", usual, Figures{}, false, "no lease is older"},
		{"all young", usual, Figures{Leases: 50}, false, "no lease is older"},
		{"all fresh", usual, Figures{Counted: 20, Fresh: 20}, false, "20 of 20 leases were renewed in time, above the threshold of 0.85"},
		{"at the threshold", usual, Figures{Counted: 20, Fresh: 17}, true, "17 of 20 leases were renewed in time, not above the threshold of 0.85"},
		{"just above the threshold", usual, Figures{Counted: 20, Fresh: 18}, false, "18 of 20"},
		{"just above the threshold, without a rounding error", usual, Figures{Counted: 4_000_000_000, Fresh: 3_400_000_001}, false, ""},
		{"at the threshold, without a rounding error", usual, Figures{Counted: 4_000_000_000, Fresh: 3_400_000_000}, true, ""},
		{"none fresh", usual, Figures{Counted: 20}, true, "0 of 20"},
		{"a population of 9", usual, Figures{Leases: 40, Counted: 9}, false, "0 of 9 leases were renewed in time, too few for self-preservation, which needs 10"},
		{"a population of 10", usual, Figures{Leases: 40, Counted: 10}, true, "0 of 10"},
		{"no least population, nobody", with(func(s *Settings) { s.Population = 0 }), Figures{}, false, "no lease is older"},
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

// One article prints the gate (evictions are allowed: strictly more renewals than the threshold) as
// the trigger of self-preservation. They are complements, at equality too, and so is ours.
func TestGateAndTriggerAreComplements(t *testing.T) {
	s := DefaultSettings()
	s.Expectation = true
	g := newRig(t)
	g.Configure(s)
	upstream := g.View()
	ours := newRig(t).View()
	for threshold := range uint32(20) {
		for renewals := range uint32(20) {
			f := Figures{Renewals: renewals, Threshold: threshold}
			gate := threshold > 0 && renewals > threshold
			trigger, _ := upstream.Condition(f)
			expect.That(t, trigger != gate, "%d renewals, threshold %d: gate %t, trigger %t", renewals, threshold, gate, trigger)
		}
	}
	for fresh := range uint32(101) {
		gate := fresh > 85 // strictly more than 0.85 of 100
		trigger, _ := ours.Condition(Figures{Counted: 100, Fresh: fresh})
		expect.That(t, trigger != gate, "%d of 100 fresh: gate %t, trigger %t", fresh, gate, trigger)
	}
}
