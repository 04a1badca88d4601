package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// lacking is a run whose columns lacked living instances for so many instance-seconds, round by round. Each run takes another time.
func lacking(took trial.Micros, cp, ap []float64) *Report {
	verdicts := func(sums []float64) (all []verdict.Verdict) {
		for _, sum := range sums {
			all = append(all, verdict.Verdict{Listed: true, Missing: sum})
		}
		return all
	}
	r := story{scenario: scenario.Scenario{Load: scenario.Load{Reads: 1}}, cp: verdicts(cp), ap: verdicts(ap)}.report()
	r.Plan.Rounds = len(cp)
	r.Plan.Columns = r.Plan.Columns[:2]
	r.Machine = trial.Machine{CPU: "one", Cores: 2, Memory: "24 GiB", Disk: "ext4"}
	for i := range r.Trials {
		r.Trials[i].Took = took
	}
	return r
}

func TestSecondRunIsHeldAgainstTheFirst(t *testing.T) {
	first := lacking(1, []float64{10, 11, 12}, []float64{40, 42, 44})
	first.Scenarios = append(first.Scenarios, scenario.Scenario{Name: "first alone", Load: scenario.Load{Reads: 1}})
	first.Plan.Only = []string{"story"}
	const missing = "story: living instances absent from lists, in instance-seconds a node, ap over cp"
	for _, c := range []struct {
		name        string
		second      *Report
		change      func(second *Report)
		apart, once int
		opposite    bool
		ratios      int
		outside     string // the end of the line of the pair
		alone       int
		differ      []string
		reasons     []string // how they begin
	}{
		{name: "it says the same", second: lacking(2, []float64{11, 12}, []float64{40, 46}), apart: 1, ratios: 1},
		{
			name: "it names the columns in another order", second: lacking(2, []float64{11, 12}, []float64{40, 46}), apart: 1, ratios: 1,
			change: func(second *Report) { slices.Reverse(second.Plan.Columns) },
		},
		{
			name: "it has other scenarios besides", second: lacking(2, []float64{11, 12}, []float64{40, 46}), apart: 1, ratios: 1,
			change: func(second *Report) {
				second.Scenarios = append(second.Scenarios, scenario.Scenario{Name: "other"})
				second.Plan.Only = []string{"story"}
			},
		},
		{name: "it cannot tell them apart", second: lacking(2, []float64{11, 44}, []float64{44, 46}), once: 1, ratios: 1, reasons: []string{"no two columns are apart in both runs; "}},
		{
			name: "it says the opposite", second: lacking(2, []float64{40, 42}, []float64{10, 11}), apart: 1, opposite: true, ratios: 1, outside: ": 0.25, not 3.33 to 4.4",
			reasons: []string{"the columns of 1 pair are the other way round", "1 of 1 ratio lie outside"},
		},
		{name: "it has another ratio", second: lacking(2, []float64{1, 2}, []float64{40, 42}), apart: 1, ratios: 1, outside: ": 40, not 3.33 to 4.4", reasons: []string{"1 of 1 ratio lie outside"}},
		{name: "its ratio reads as the end of the range does", second: lacking(2, []float64{10, 10}, []float64{44.04, 44.04}), apart: 1, ratios: 1},
		{name: "its ratio is beyond the end of the range", second: lacking(2, []float64{10, 10}, []float64{44.06, 44.06}), apart: 1, ratios: 1, outside: ": 4.41, not 3.33 to 4.4", reasons: []string{"1 of 1 ratio lie outside"}},
		{
			name: "it is another machine's", second: lacking(2, []float64{11, 12}, []float64{40, 46}), apart: 1, ratios: 1,
			change: func(second *Report) {
				second.Machine = trial.Machine{CPU: "other", Cores: 4, Memory: "8 GiB", Disk: "xfs", Sync: "measured"}
				second.Plan.Seed = 2
			},
			differ: []string{"the machine: one, 2 cores, 24 GiB of memory, ext4, and other, 4 cores, 8 GiB of memory, xfs in the second run", "the seed: 0, and 2 in the second run"},
		},
		{name: "it had one round", second: lacking(2, []float64{10}, []float64{40}), alone: 3, reasons: []string{"no two columns", "no ratio"}},
		{name: "it has a ratio with 0", second: lacking(2, []float64{0, 0}, []float64{40, 42}), apart: 1, reasons: []string{"no ratio"}},
		{name: "it is the same file", second: first, apart: 1, ratios: 1, reasons: []string{"both files hold the same run"}},
		{
			name: "it is not valid, of another length, with another load and other settings", second: lacking(2, []float64{11, 12}, []float64{40, 46}), apart: 1, ratios: 1,
			change: func(second *Report) {
				second.Plan.Rounds++
				second.Plan.Length += 10_000_000
				second.Scenarios[0].Load.Reads = 2
				second.Plan.Columns[1].Settings = map[string]string{"data.sync": "always"}
			},
			reasons: []string{"the second run is not valid", "the load lasts ", "the scenario story does not do the same", "the column ap is not the same"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.second)
			}
			a := first.Hold(c.second)
			expect.That(t, a.Apart == c.apart && a.ApartOnce == c.once && a.Ratios == c.ratios && a.Alone == c.alone && (len(a.Opposite) == 1) == c.opposite && (len(a.Outside) == 1) == (c.outside != ""),
				"%+v; want %d apart in both, %d in one, %d ratios, %d alone, opposite %t, outside %q", a, c.apart, c.once, c.ratios, c.alone, c.opposite, c.outside)
			var text strings.Builder
			need.OK(t, a.Write(&text))
			for _, line := range slices.Concat(a.Opposite, a.Outside) {
				expect.That(t, strings.HasPrefix(line, missing) && strings.HasSuffix(line, c.outside) || line == missing, "it names %q, want %q%s", line, missing, c.outside)
				expect.That(t, strings.Contains(text.String(), "  "+line+"\n"), "it says %q, want %q in it", text.String(), line)
			}
			expect.That(t, slices.Equal(a.Differ, c.differ), "the runs differ in %q, want %q", a.Differ, c.differ)
			for _, what := range c.differ {
				expect.That(t, strings.Contains(text.String(), "The runs differ in "+what+".\n"), "it says %q, want %q in it", text.String(), what)
			}
			expect.That(t, slices.EqualFunc(a.Reasons, c.reasons, strings.HasPrefix), "it does not agree because of %q, want %q", a.Reasons, c.reasons)
		})
	}
}

// What was answered to the last call in all rounds of both runs says nothing of how alike they are.
func TestRatiosThatAreAlwaysOneAreNotCounted(t *testing.T) {
	first, second := lacking(1, []float64{5, 5}, []float64{5, 5}), lacking(2, []float64{5, 5}, []float64{5, 5})
	expect.Equal(t, first.Hold(second).Ratios, 0, "ratios:")
}
