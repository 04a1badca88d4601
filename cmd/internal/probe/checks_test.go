package probe

import (
	"math"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

const (
	pass = catalog.Passing
	warn = catalog.Warning
	crit = catalog.Critical
)

func TestTallyDecidesAStateByResultsInARow(t *testing.T) {
	type counts struct{ pass, warn, crit int32 }
	tests := []struct {
		name    string
		counts  counts
		present catalog.CheckStatus
		results []catalog.CheckStatus
		want    []catalog.CheckStatus // the state after each
	}{
		{"without counts each result decides", counts{}, crit, []catalog.CheckStatus{pass, warn, crit, pass}, []catalog.CheckStatus{pass, warn, crit, pass}},
		{"three to pass", counts{pass: 3}, crit, []catalog.CheckStatus{pass, pass, pass}, []catalog.CheckStatus{crit, crit, pass}},
		{"a failure between begins anew", counts{pass: 2}, crit, []catalog.CheckStatus{pass, crit, pass, pass}, []catalog.CheckStatus{crit, crit, crit, pass}},
		{"warnings count as successes", counts{pass: 2}, crit, []catalog.CheckStatus{warn, warn, pass}, []catalog.CheckStatus{crit, warn, pass}},
		{"three to be critical", counts{crit: 3}, pass, []catalog.CheckStatus{crit, crit, crit}, []catalog.CheckStatus{pass, pass, crit}},
		{"a success between begins anew", counts{crit: 2}, pass, []catalog.CheckStatus{crit, pass, crit, crit}, []catalog.CheckStatus{pass, pass, pass, crit}},
		{"warning before critical", counts{warn: 2, crit: 4}, pass, []catalog.CheckStatus{crit, crit, crit, crit}, []catalog.CheckStatus{pass, warn, warn, crit}},
		{"a failure makes nothing better", counts{warn: 1, crit: 3}, crit, []catalog.CheckStatus{crit, crit}, []catalog.CheckStatus{crit, crit}},
	}
	for _, tt := range tests {
		var tally tally
		p := &catalog.Probe{SuccessBeforePassing: tt.counts.pass, FailuresBeforeWarning: tt.counts.warn, FailuresBeforeCritical: tt.counts.crit}
		present := tt.present
		for i, found := range tt.results {
			if status, decided := tally.count(p, present, found); decided {
				present = status
			}
			if present != tt.want[i] {
				t.Errorf("%s: state %d after result %d of %v, want %v", tt.name, present, i+1, tt.results, tt.want)
				break
			}
		}
	}
}

func TestTallySetsACheckWhenTheStateOrAFailuresOutputChanged(t *testing.T) {
	now := time.Unix(1000, 0)
	tests := []struct {
		name    string
		present catalog.Check
		found   result
		set     time.Duration // the newest output, before now
		want    bool
	}{
		{"another state", catalog.Check{Status: pass}, result{crit, ""}, 0, true},
		{"passing with another output", catalog.Check{Status: pass, Output: "a"}, result{pass, "b"}, time.Hour, false},
		{"critical with the same output", catalog.Check{Status: crit, Output: "a"}, result{crit, "a"}, time.Hour, false},
		{"critical with another output", catalog.Check{Status: crit, Output: "a"}, result{crit, "b"}, time.Hour, true},
		{"warning with another output", catalog.Check{Status: warn, Output: "a"}, result{warn, "b"}, outputPause, true},
		{"an output set lately", catalog.Check{Status: crit, Output: "a"}, result{crit, "b"}, outputPause - 1, false},
		{"another state set lately", catalog.Check{Status: crit, Output: "a"}, result{warn, "b"}, 0, true},
	}
	for _, tt := range tests {
		tally := tally{setAt: now.Add(-tt.set)}
		expect.Equal(t, tally.mustSet(&tt.present, tt.found, now), tt.want, "%s: set", tt.name)
	}
}

func TestCheckBoundsItsTimeOut(t *testing.T) {
	const hour = 3_600_000
	for _, tc := range []struct {
		interval, timeout int64
		want              time.Duration
	}{
		{60_000, 5000, 5 * time.Second},
		{60_000, 0, 10 * time.Second},
		{60_000, 10_000 * hour, 30 * time.Second},
		{60_000, math.MaxInt64, 30 * time.Second},
		{20_000, 10_000 * hour, 20 * time.Second},
		{2000, 0, 2 * time.Second},
		{10, 10_000, time.Second},
	} {
		c := check{probe: &catalog.Probe{Interval: tc.interval, Timeout: tc.timeout}}
		expect.Equal(t, c.timeout(), tc.want, "interval %d ms, time-out %d ms: bounded by", tc.interval, tc.timeout)
	}
}
