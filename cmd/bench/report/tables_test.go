package report

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestCellsAreMarkedOnlyWhereRangesAreApart(t *testing.T) {
	for _, c := range []struct {
		name   string
		better direction
		values []perRound
		apart  int // the number of a column that is not compared, from 1; 0 for none
		want   []bool
	}{
		{"the least", less, []perRound{{1, 2}, {3, 4}, {5, 6}}, 0, []bool{true, false, false}},
		{"the most", more, []perRound{{1, 2}, {3, 4}, {5, 6}}, 0, []bool{false, false, true}},
		{"ranges that touch in one value", less, []perRound{{1, 3}, {3, 4}}, 0, []bool{false, false}},
		{"a range within another", less, []perRound{{1, 9}, {4, 5}}, 0, []bool{false, false}},
		{"two that are alike, apart from a third", less, []perRound{{0, 0}, {0, 0}, {5, 6}}, 0, []bool{true, true, false}},
		{"two that touch, of which one touches a third", less, []perRound{{0, 2}, {1, 4}, {3, 6}}, 0, []bool{false, false, false}},
		{"one round each", less, []perRound{{1}, {9}}, 0, []bool{false, false}},
		{"one round of any column", less, []perRound{{1, 2}, {8, 9}, {5}}, 0, []bool{true, false, false}},
		{"one round that is better than all", less, []perRound{{1, 2}, {8, 9}, {0}}, 0, []bool{true, false, false}},
		{"no column to compare with", less, []perRound{{1, 2}, nil}, 0, []bool{false, false}},
		{"all alike", less, []perRound{{1, 2}, {1, 2}}, 0, []bool{false, false}},
		{"no direction", neither, []perRound{{1, 2}, {8, 9}}, 0, []bool{false, false}},
		{"the best is compared with nothing", less, []perRound{{0, 0}, {1, 2}, {8, 9}}, 1, []bool{false, true, false}},
		{"the worst is compared with nothing", less, []perRound{{1, 2}, {8, 9}}, 2, []bool{false, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cells := make([]cell, len(c.values))
			for i := range cells {
				cells[i] = cell{values: c.values[i], compare: len(c.values[i]) > 1 && i+1 != c.apart}
			}
			mark(cells, c.better)
			for i := range cells {
				expect.Equal(t, cells[i].Better, c.want[i], "cell %d:", i)
			}
		})
	}
}

// rowNamed returns a row of the only scenario's table.
func rowNamed(t *testing.T, r *Report, name string) row {
	t.Helper()
	rows := r.table(r.Scenarios[0])
	at := slices.IndexFunc(rows, func(w row) bool { return w.Name == name })
	need.That(t, at >= 0, "there is no row %q in %+v", name, rows)
	return rows[at]
}

func words(of row) []string {
	var all []string
	for _, c := range of.Cells {
		text := c.Words()
		if c.Better {
			text = "* " + text
		}
		all = append(all, text)
	}
	return all
}

const noWrites = "longest time without an answered write"

func TestCellsHaveMedianRangeAndCount(t *testing.T) {
	killed, injected := fault(scenario.Fault{Kind: scenario.Kill, Nodes: "leader"}, []int{0}, 0)
	tale := story{
		scenario: killed, injected: injected,
		cp:     []verdict.Verdict{{Writes: gap(done(1, 1), 2)}, {Writes: gap(done(1, 1), 4)}, {Writes: gap(done(1, 1), 3)}},
		ap:     []verdict.Verdict{{Writes: gap(done(1, 1), 0.1)}, {Writes: gap(done(1, 1), 0.1)}},
		eureka: []verdict.Verdict{{Writes: gap(done(1, 1), 4)}, {Writes: gap(done(1, 1), 5)}},
	}
	expect.Slice(t, words(rowNamed(t, tale.report(), noWrites)), []string{"3 s (2 s to 4 s, n=3)", "* 100 ms (n=2)", "4 s (4 s to 5 s, n=2)"}, "cells:")
}

func TestTrialsThatAreNotValidAreInNoFigureAndAreCounted(t *testing.T) {
	killed, injected := fault(scenario.Fault{Kind: scenario.Kill, Nodes: "leader"}, []int{0}, 0)
	tale := story{
		scenario: killed, injected: injected,
		cp: []verdict.Verdict{{Writes: gap(done(1, 1), 2)}, {Writes: gap(done(1, 1), 90), Invalid: []string{"the disk stalled"}, Broken: []verdict.Broken{{Limit: "cp: nothing is lost", Got: "1 instance"}}}},
		ap: []verdict.Verdict{{Writes: gap(done(1, 1), 90), Invalid: []string{"the disk stalled", "the load was late"}}},
	}
	r := tale.report()
	expect.Slice(t, words(rowNamed(t, r, noWrites)), []string{"2 s (n=1; not valid)", "not valid", "not run"}, "cells:")
	expect.Slice(t, r.Invalid(), []string{"story, cp, round 2: the disk stalled", "story, ap, round 1: the disk stalled; the load was late"}, "not valid:")
	expect.Slice(t, r.Broken(), []string{"story, cp, round 2: nothing is lost, but got 1 instance"}, "what was lost is lost, valid or not:")
	expect.That(t, strings.Contains(r.evidence(), "3 trials (1 count) of 1 scenario") && strings.Contains(r.evidence(), "The run is not valid."), "the evidence hides it: %s", r.evidence())
	for _, banner := range []string{`class="banner invalid"`, `class="banner broken"`} {
		var page strings.Builder
		need.OK(t, r.writeHTML(&page))
		expect.That(t, strings.Contains(page.String(), banner), "the page has no %s", banner)
	}
}

// lossy returns a report of scenarios where each column lost a number of registrations in each of its rounds.
func lossy(lost map[string]map[string][]int) *Report {
	r := &Report{Comparison: &trial.Comparison{Plan: trial.Plan{Columns: scenario.Columns()[:3]}}}
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		r.Scenarios = append(r.Scenarios, scenario.Scenario{Name: name, Title: name, Load: scenario.Load{Reads: 1}})
		for _, column := range r.Plan.Columns {
			for i, count := range lost[name][column.Name] {
				v := verdict.Verdict{Losses: verdict.Losses{Registrations: verdict.Loss{Of: 100, Count: count}}}
				if count > 0 {
					v.Losses.Registrations.Age = verdict.Spread{Count: count, P50: 0.1, Max: 0.4}
				}
				r.Trials = append(r.Trials, trial.Trial{Scenario: name, Column: column.Name, Round: i + 1})
				r.Verdicts = append(r.Verdicts, v)
			}
		}
	}
	return r
}

func TestLossesSayOfHowManyAndHowOld(t *testing.T) {
	r := lossy(map[string]map[string][]int{"crash": {"cp": {0, 0}, "ap": {3, 5}, "eureka": {9, 9}}})
	expect.Slice(t, words(rowNamed(t, r, "registrations lost")), []string{
		"* 0 (n=2; of 100 registrations)",
		"3 (3 to 5, n=2; of 100 registrations; acknowledged up to 400 ms before the kill)",
		"9 (n=2; of 100 registrations; acknowledged up to 400 ms before the kill)",
	}, "cells:")
	expect.Slice(t, words(rowNamed(t, r, "acknowledged changes lost")), []string{"* 0 (n=2)", "3 (3 to 5, n=2)", "9 (n=2)"}, "all kinds:")
}

// Each chosen row names an existing figure and scenario.
func TestChosenRowsAreOfFiguresAndScenarios(t *testing.T) {
	builtin := need.Got(scenario.Builtin())(t)
	expect.That(t, len(chosen) <= 8, "%d chosen rows, want eight at most", len(chosen))
	for _, c := range chosen {
		expect.That(t, slices.ContainsFunc(figures(), func(f figure) bool { return f.name == c.figure }), "%s: there is no figure %q", c.name, c.figure)
		expect.That(t, slices.ContainsFunc(builtin, func(s scenario.Scenario) bool { return s.Name == c.scenario }), "%s: there is no scenario %q", c.name, c.scenario)
	}
}

func TestFiguresHaveNamesOfTheirOwn(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range figures() {
		expect.That(t, !seen[f.name], "two figures are called %q", f.name)
		seen[f.name] = true
	}
}

// A run where nothing counts proves nothing, and one that lacks trials proves less than planned.
func TestRunThatMeasuredNothingOrTooLittleIsNotValid(t *testing.T) {
	crash := func() *Report {
		r := lossy(map[string]map[string][]int{"crash": {"cp": {0, 0}, "ap": {7, 9}}})
		r.Plan.Columns = r.Plan.Columns[:2]
		r.Scenarios[0].Faults = []scenario.Fault{{Kind: scenario.Kill}}
		r.Plan.Rounds = 2
		return r
	}
	for _, c := range []struct {
		name   string
		change func(*Report)
		want   []string
	}{
		{"all is there", func(*Report) {}, nil},
		{"no trial", func(r *Report) { r.Trials, r.Verdicts = nil, nil }, []string{"no trial was run", "0 of 4 planned trials were run"}},
		{"no trial was planned", func(r *Report) { r.Trials, r.Verdicts, r.Scenarios = nil, nil, nil }, []string{"no trial was run"}},
		{"one is missing", func(r *Report) { r.Trials, r.Verdicts = r.Trials[:3], r.Verdicts[:3] }, []string{"3 of 4 planned trials were run"}},
		{"one was not asked for", func(r *Report) {
			r.Trials, r.Verdicts, r.Plan.Only = r.Trials[:2], r.Verdicts[:2], []string{"crash/cp"}
		}, nil},
		{"one column was left out", func(r *Report) {
			r.Trials, r.Verdicts, r.Plan.LeftOut = r.Trials[:2], r.Verdicts[:2], []string{"Column AP was left out: no node started."}
		}, nil},
		{"none was carried", func(r *Report) {
			r.Scenarios[0].Load, r.Scenarios[0].Faults = scenario.Load{Instances: 5}, nil
			for i := range r.Verdicts {
				r.Verdicts[i].Invalid = []string{"the processors were exhausted"}
			}
		}, []string{"no trial counts: none was completed on a machine that carried it"}},
		{"no trial of a column that promises nothing was completed", func(r *Report) {
			for i := range r.Trials {
				if r.Trials[i].Column == "ap" {
					r.Trials[i].Failed = "node1 ended"
				}
			}
			r.Plan.Columns[1].System = scenario.Eureka
		}, []string{"no trial of AP was completed"}},
		{"no trial of a column that has limits was completed", func(r *Report) {
			for i := range r.Trials {
				if r.Trials[i].Column == "ap" {
					r.Trials[i].Failed = "node1 ended"
				}
			}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := crash()
			c.change(r)
			expect.Slice(t, r.Invalid(), c.want, "not valid:")
			expect.That(t, strings.HasPrefix(r.validText(), "The run is valid") == (len(c.want) == 0), "it says %s", r.validText())
		})
	}
}

func TestRoundsThatWereNotCompletedAreTold(t *testing.T) {
	r := lossy(map[string]map[string][]int{"crash": {"cp": {0, 0, 1}}})
	r.Trials[2].Failed = "node1 did not start"
	r.Verdicts[0].Losses.Registrations.Count = 2
	expect.Equal(t, words(rowNamed(t, r, "registrations lost"))[0], "0 (0 to 2, n=2; not completed; of 100 registrations)", "cell:")
	expect.That(t, strings.Contains(r.evidence(), " 3 trials (2 count) of 1 scenario"), "evidence: %s", r.evidence())
}

// What a freshly started Java machine spends says little about the server in it.
func TestCostsOfAJavaMachineAreNotHeldAgainstOthers(t *testing.T) {
	s := scenario.Scenario{Name: "thousand", Load: scenario.Load{Instances: 1000, Heartbeat: scenario.Span(time.Second)}}
	r := &Report{Comparison: &trial.Comparison{Scenarios: []scenario.Scenario{s}, Plan: trial.Plan{Columns: scenario.Columns()[:3]}}}
	for i, c := range r.Plan.Columns {
		for round := range 2 {
			r.Trials = append(r.Trials, trial.Trial{Scenario: s.Name, Column: c.Name, Round: round + 1})
			r.Verdicts = append(r.Verdicts, verdict.Verdict{Cost: verdict.Cost{Renewals: 1000, CPU: float64(i + 1), Memory: 1, MemoryPerInstances: float64(4 - i)}})
		}
	}
	expect.Slice(t, words(rowNamed(t, r, "processor time of all nodes, per second")), []string{"* 1 s (n=2)", "2 s (n=2)", "3 s (n=2; not compared: just started, the first compiler alone)"}, "processors:")
	expect.Slice(t, words(rowNamed(t, r, "memory of a node for 1,000 instances")), []string{"4 B (n=2)", "* 3 B (n=2)", "cannot be told: garbage is in it"}, "memory:")
	expect.Deep(t, r.curves()[1], curve{"ap", [][3]float64{{1000, 2, 0}}}, "curve of ap:")
}

func TestEvidenceSaysHowFarTheFiguresReach(t *testing.T) {
	got := judgedSample().evidence()
	for _, want := range []string{"Sample CPU @ 2.5 GHz, 4 cores", "up to 3 rounds of 15 s each", "without network latency", "Limits broken: 3"} {
		expect.That(t, strings.Contains(got, want), "%q is not in %s", want, got)
		for _, file := range []string{MarkdownFile, HTMLFile} {
			expect.That(t, strings.Contains(strings.ReplaceAll(sampleFiles()[file], "\u00a0", " "), want), "%s does not show %q", file, want)
		}
	}
}

func TestWhatAColumnCannotDoIsSaid(t *testing.T) {
	s, _ := fault(scenario.Fault{Kind: scenario.SlowDisk, Nodes: "all"}, []int{0}, 0)
	r := story{scenario: s, cp: []verdict.Verdict{{Writes: done(1, 0)}}}.report()
	expect.Slice(t, words(rowNamed(t, r, "writes answered")), []string{"100 % (n=1)", "not run", "Eureka writes to no disk that could be slow"}, "cells:")
}

func TestColumnsHaveClassesOfAFewWords(t *testing.T) {
	own := []scenario.Column{{Name: `x" onload="alert(1)`}, {Name: "ap", Title: "AP"}, {Name: "more-0"}, {Name: "eureka"}}
	r := &Report{Comparison: &trial.Comparison{Plan: trial.Plan{Columns: append(own, scenario.Column{Name: "late"})}}}
	var classes []string
	for _, c := range r.columns() {
		classes = append(classes, c.Class)
	}
	expect.Slice(t, classes, []string{"more-0", "ap", "more-1", "eureka", "more-2"}, "classes:")
}

func TestHistoriesSayHowMuchTheyProve(t *testing.T) {
	s := scenario.Scenario{Load: scenario.Load{KeyWriters: 20}}
	h := func(result verdict.Result, violated ...string) verdict.Verdict {
		return verdict.Verdict{History: verdict.History{Result: result, Keys: 4, Overlapping: 1234, Unknown: 56, Violated: violated}}
	}
	r := story{scenario: s, cp: []verdict.Verdict{h(verdict.OK), h(verdict.Violated, "k")}, ap: []verdict.Verdict{h(verdict.Unpromised)}}.report()
	expect.Slice(t, words(rowNamed(t, r, "watched keys whose history no single copy explains")), []string{
		"0 (0 to 1, n=2; of 4 keys; overlapping writes: 1,234; of unknown outcome: 56)", "not promised", "not run",
	}, "cells:")
}

func TestKillsThatAreAimedSayHowManyMetWrites(t *testing.T) {
	kills := func(writing ...int) run {
		f := trial.Fault{}
		for _, w := range writing {
			f.Kills = append(f.Kills, trial.Kill{Writing: w})
		}
		return run{&trial.Trial{Faults: []trial.Fault{f}}, new(verdict.Verdict)}
	}
	of := runs{of: []run{kills(0, 3), kills(1, 2)}}
	expect.That(t, !strings.Contains(proof(of), "kills"), "kills that nothing was aimed at: %s", proof(of))
	of.scenario.Faults = []scenario.Fault{{Kind: scenario.Kill, Times: 2}}
	expect.That(t, strings.HasSuffix(proof(of), "; 3 of 4 kills amid writes"), "aimed kills: %s", proof(of))
}

// A checker that could not decide yields no figure: 0 would say that all is well.
func TestWhatIsUndecidedIsNoFigure(t *testing.T) {
	for _, result := range []verdict.Result{verdict.OK, verdict.Violated, verdict.Undecided, verdict.Unpromised} {
		v := &verdict.Verdict{History: verdict.History{Result: result, Keys: 2}, Converged: verdict.Convergence{Result: result}}
		decided := result == verdict.OK || result == verdict.Violated
		expect.Equal(t, !math.IsNaN(unexplained(v)), decided, "a history that is %s is known:", result)
		expect.Equal(t, !math.IsNaN(differing(v)), decided, "convergence that is %s is known:", result)
	}
}

func TestNotesSayWhatAFigureLeavesOpen(t *testing.T) {
	open := verdict.Verdict{
		Writes: verdict.Calls{Count: 1, LongestGap: 9, OpenGap: true},
		Worst:  map[trial.Operation]verdict.Worst{trial.Fetch: {Clients: 1, Gap: 9, Open: true}},
		Losses: verdict.Losses{Cancels: verdict.Loss{Of: 3, Unjudged: 7}},
	}
	of := runs{of: []run{{verdict: &open}, {verdict: new(verdict.Verdict)}}}
	for name, want := range map[string]string{
		noWrites: "at least: in 1 of 2 no answer ended it",
		"worst client: longest time without an answered fetch": "at least: in 1 of 2 no answer ended it",
		"cancels undone": "7 more could not be judged: a node did not answer",
	} {
		all := figures()
		note := all[slices.IndexFunc(all, func(f figure) bool { return f.name == name })].note(of)
		expect.That(t, strings.Contains(note, want), "%s has the note %q, want %q in it", name, note, want)
	}
}

func TestFigureOfListsIsNotKnownWithoutLists(t *testing.T) {
	for _, listed := range []bool{true, false} {
		got := ofLists(func(v *verdict.Verdict) float64 { return v.Ghosts })(&verdict.Verdict{Listed: listed})
		expect.Equal(t, !math.IsNaN(got), listed, "it is known:")
	}
}

// What never happened is worse than anything that took long.
func TestWhatNeverHappenedTakesForEver(t *testing.T) {
	healing := func(seconds float64) verdict.Verdict {
		return verdict.Verdict{Healing: []verdict.Healing{{Seconds: 1}, {Seconds: seconds}}}
	}
	r := story{cp: []verdict.Verdict{healing(2), healing(3)}, ap: []verdict.Verdict{healing(-1), healing(-1)}}.report()
	expect.Slice(t, words(rowNamed(t, r, "everything in every list after the fault's end")), []string{"* 2 s (2 s to 3 s, n=2)", "never (n=2)", "not run"}, "cells:")
	late := func(never int) verdict.Verdict {
		return verdict.Verdict{Removal: verdict.Spread{Count: 99, Never: never, P50: 1, P99: 4}}
	}
	r = story{cp: []verdict.Verdict{late(1)}, ap: []verdict.Verdict{late(2)}, eureka: []verdict.Verdict{late(0)}}.report()
	expect.Slice(t, words(rowNamed(t, r, "a dead instance is gone from every list, p99")), []string{"4 s (n=1; 1 of 100 never)", "never (n=1; 2 of 101 never)", "4 s (n=1; p50 1 s)"}, "cells:")
}

// story is a scenario with its trials: a verdict for each round of each column.
type story struct {
	scenario scenario.Scenario
	injected []trial.Fault // in every trial
	cp, ap   []verdict.Verdict
	eureka   []verdict.Verdict
}

func (s story) report() *Report {
	s.scenario.Name = "story"
	columns := scenario.Columns()[:3]
	r := &Report{Comparison: &trial.Comparison{Scenarios: []scenario.Scenario{s.scenario}, Plan: trial.Plan{Columns: columns}}}
	for i, verdicts := range [][]verdict.Verdict{s.cp, s.ap, s.eureka} {
		for round, v := range verdicts {
			v.Told = columns[i].Streams()
			r.Trials = append(r.Trials, trial.Trial{Scenario: "story", Column: columns[i].Name, Round: round + 1, Length: 10 * second, Faults: s.injected})
			r.Verdicts = append(r.Verdicts, v)
		}
	}
	return r
}

// done returns the calls of a second: some were answered, some refused.
func done(answered, refused int) verdict.Calls {
	c := verdict.Calls{Count: answered + refused, Success: 1, PerSecond: float64(answered), Outcomes: map[trial.Outcome]int{trial.Done: answered, trial.Refused: refused}}
	if c.Count > 0 {
		c.Success = float64(answered) / float64(c.Count)
	}
	c.Latency = verdict.Spread{Count: answered, P50: 0.001, P99: 0.002}
	return c
}

// gap returns calls with a gap of a length.
func gap(c verdict.Calls, seconds float64) verdict.Calls {
	c.LongestGap = seconds
	return c
}

// fault returns one of a kind, injected from second 2 to second 8.
func fault(f scenario.Fault, nodes []int, count int) (scenario.Scenario, []trial.Fault) {
	s := scenario.Scenario{Load: scenario.Load{Instances: 300}, Faults: []scenario.Fault{f}}
	return s, []trial.Fault{{Kind: f.Kind, Nodes: nodes, From: 2 * second, To: 8 * second, Count: count}}
}
