package report

import (
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
		name    string
		better  direction
		values  []perRound
		partial int // the place of a column that ran fewer scenarios, from 1; 0: none
		want    []bool
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
		{"the best ran fewer scenarios", less, []perRound{{0, 0}, {1, 2}, {8, 9}}, 1, []bool{false, true, false}},
		{"the worst ran fewer scenarios", less, []perRound{{1, 2}, {8, 9}}, 2, []bool{false, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cells := make([]cell, len(c.values))
			for i := range cells {
				cells[i] = cell{values: c.values[i], partial: i+1 == c.partial}
			}
			mark(cells, c.better)
			for i := range cells {
				expect.Equal(t, cells[i].Better, c.want[i], "cell %d:", i)
			}
		})
	}
}

func rowOf(t *testing.T, r *Report, name string) row {
	t.Helper()
	var names []string
	for _, g := range r.groups() {
		for _, row := range g.Rows {
			if row.Name == name {
				return row
			}
			names = append(names, row.Name)
		}
	}
	need.That(t, false, "there is no row %q in:\n%s", name, strings.Join(names, "\n"))
	return row{}
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

const leaderKilled = "Longest time without an answered write, when the leader is killed"

func TestCellsHaveMedianRangeAndCount(t *testing.T) {
	killed, injected := fault(scenario.Fault{Kind: scenario.Kill, Nodes: "leader"}, []int{0}, 0)
	tale := story{
		scenario: killed, injected: injected,
		cp:     []verdict.Verdict{{Writes: gap(done(1, 1), 2)}, {Writes: gap(done(1, 1), 4)}, {Writes: gap(done(1, 1), 3)}},
		ap:     []verdict.Verdict{{Writes: gap(done(1, 1), 0.1)}, {Writes: gap(done(1, 1), 0.1)}},
		eureka: []verdict.Verdict{{Writes: gap(done(1, 1), 4)}, {Writes: gap(done(1, 1), 5)}},
	}
	expect.Slice(t, words(rowOf(t, tale.report(), leaderKilled)), []string{"3 s (2 s to 4 s, n=3)", "* 100 ms (n=2)", "4 s (4 s to 5 s, n=2)"}, "cells:")
}

func TestTrialsThatAreNotValidAreInNoFigureAndAreCounted(t *testing.T) {
	killed, injected := fault(scenario.Fault{Kind: scenario.Kill, Nodes: "leader"}, []int{0}, 0)
	tale := story{
		scenario: killed, injected: injected,
		cp: []verdict.Verdict{{Writes: gap(done(1, 1), 2)}, {Writes: gap(done(1, 1), 90), Invalid: []string{"the disk stalled"}, Broken: []verdict.Broken{{Limit: "cp: nothing is lost", Got: "1 instance"}}}},
		ap: []verdict.Verdict{{Writes: gap(done(1, 1), 90), Invalid: []string{"the disk stalled", "the load was late"}}},
	}
	r := tale.report()
	expect.Slice(t, words(rowOf(t, r, leaderKilled)), []string{"2 s (n=1; 1 not valid)", "not valid", "not run"}, "cells:")
	expect.Slice(t, r.Invalid(), []string{"story, cp, round 2: the disk stalled", "story, ap, round 1: the disk stalled; the load was late"}, "not valid:")
	expect.Slice(t, r.Broken(), []string{"story, cp, round 2: nothing is lost, but got 1 instance"}, "what was lost is lost, valid or not:")
	expect.That(t, strings.Contains(r.evidence(), "2 of 3 trials measured the machine and not the servers."), "the evidence hides it: %s", r.evidence())
	for _, banner := range []string{`class="banner invalid"`, `class="banner broken"`} {
		var page strings.Builder
		need.OK(t, r.writeHTML(&page))
		expect.That(t, strings.Contains(page.String(), banner), "the page has no %s", banner)
	}
}

// beats is a scenario of nothing but heartbeats.
func beats(name string, instances int, every time.Duration) scenario.Scenario {
	return scenario.Scenario{Name: name, Title: name, Load: scenario.Load{Instances: instances, Heartbeat: scenario.Span(every)}}
}

// priced is a report of loads of heartbeats, of which column cp ran each once: what each cost, and whether it was carried.
func priced(loads []scenario.Scenario, costs []verdict.Cost, carried []bool) *Report {
	r := &Report{Comparison: &trial.Comparison{Scenarios: loads, Plan: trial.Plan{Columns: scenario.Columns()[:2]}}}
	for i, s := range loads {
		costs[i].Memory = 40e6
		v := verdict.Verdict{Cost: costs[i], Broken: []verdict.Broken{}}
		if !carried[i] {
			v.Invalid = []string{"the processors were exhausted"}
			v.Broken = []verdict.Broken{{Limit: "cp: write-success at least 0.9", Got: "0.5"}}
		}
		r.Trials = append(r.Trials, trial.Trial{Scenario: s.Name, Column: "cp", Round: 1})
		r.Verdicts = append(r.Verdicts, v)
	}
	return r
}

// lossy is a report of scenarios in which each column lost so many registrations, in each of its rounds.
func lossy(lost map[string]map[string][]int) *Report {
	r := &Report{Comparison: &trial.Comparison{Plan: trial.Plan{Columns: scenario.Columns()[:3]}}}
	for _, name := range sortedNames(lost) {
		r.Scenarios = append(r.Scenarios, scenario.Scenario{Name: name, Title: capital(name), Load: scenario.Load{Reads: 1}})
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

func TestLossesAreThoseOfTheWorstScenarioAndNoSum(t *testing.T) {
	r := lossy(map[string]map[string][]int{
		"crash": {"cp": {0, 0}, "ap": {3, 5}, "eureka": {9, 9}},
		"power": {"cp": {0, 0}, "ap": {6, 8}, "eureka": {0, 0}},
		"reset": {"cp": {0, 0}, "ap": {50, 50}},
	})
	lost := rowOf(t, r, "Registrations lost, worst scenario")
	expect.Slice(t, words(lost), []string{
		"* 0 (n=2; of 100 registrations)",
		"6 (in Power; 6 to 8, n=2; of 100 registrations; age at the kill up to 400 ms, p50 100 ms; where not all columns ran: 50 in Reset)",
		"9 (in Crash; n=2; of 100 registrations; age at the kill up to 400 ms, p50 100 ms)",
	}, "cells:")
	expect.Equal(t, lost.Note, "of the 2 scenarios that all columns ran: not of Reset", "note:")
	var md, page strings.Builder
	need.OK(t, r.writeMarkdown(&md))
	need.OK(t, r.writeHTML(&page))
	expect.That(t, !strings.Contains(md.String(), "in all scenarios"), "something is summed over scenarios, which are unlike")
	expect.That(t, strings.Contains(md.String(), lost.Note) && strings.Contains(page.String(), "<small>"+lost.Note+"</small>"), "the note is not shown")
}

// Where columns ran other scenarios, they are held against each other in those that all of them ran.
func TestWorstScenariosAreOfThoseThatAllColumnsRan(t *testing.T) {
	r := lossy(map[string]map[string][]int{
		"crash": {"cp": {1, 1}, "ap": {5, 5}, "eureka": {0, 0}},
		"power": {"cp": {1, 1}, "ap": {6, 8}},
	})
	got := words(rowOf(t, r, "Registrations lost, worst scenario"))
	expect.That(t, strings.HasPrefix(got[0], "1 ") && strings.HasPrefix(got[1], "5 (in Crash") && strings.HasPrefix(got[2], "* 0 "), "cells: %q", got)

	brief := lossy(map[string]map[string][]int{
		"crash": {"cp": {0, 0}, "ap": {5, 5}, "eureka": {0, 0}},
		"power": {"cp": {1, 1}, "ap": {6, 8}},
	})
	brief.Plan.Columns[2].Brief = true
	got = words(rowOf(t, brief, "Registrations lost, worst scenario"))
	expect.That(t, strings.HasPrefix(got[0], "* 1 ") && strings.HasPrefix(got[1], "6 ") && strings.Contains(got[2], "ran 1 of 2 scenarios"), "a brief column leaves out nothing of others: %q", got)

	apart := lossy(map[string]map[string][]int{"crash": {"cp": {0, 0}}, "power": {"ap": {6, 8}}})
	got = words(rowOf(t, apart, "Registrations lost, worst scenario"))
	expect.That(t, strings.HasPrefix(got[0], "0 ") && strings.HasPrefix(got[1], "6 "), "columns that share no scenario are not compared: %q", got)
}

// Two of three rounds lost nothing in the scenario that Eureka did not run. The median alone would hide the third.
func TestWorseScenarioThatNotAllColumnsRanShowsItsRange(t *testing.T) {
	r := lossy(map[string]map[string][]int{
		"crash": {"cp": {0, 0, 0}, "ap": {0, 0, 0}, "eureka": {9, 9, 9}},
		"reset": {"cp": {0, 0, 0}, "ap": {0, 0, 50}},
	})
	got := words(rowOf(t, r, "Registrations lost, worst scenario"))[1]
	expect.That(t, strings.Contains(got, "where not all columns ran: 0 to 50 in Reset"), "cell: %s", got)
}

// A run in which nothing counts proves nothing, and one that lacks trials less than it was planned to.
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
		}, []string{"no trial counts: none of 4 trials was completed on a machine that carried it"}},
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

// What a load that never arrived does to a column is not known; that a node gives no answer in the end, or has lost
// something, is.
func TestPromisesBreakUnderALoadThatWasNotCarried(t *testing.T) {
	r := priced([]scenario.Scenario{beats("many", 1000, time.Second)}, []verdict.Cost{{Renewals: 900}}, []bool{false})
	r.Verdicts[0].Broken = append(r.Verdicts[0].Broken, verdict.Broken{Limit: "cp: every node answers at the end", Got: "node2 did not"}, verdict.Broken{Limit: "cp: false-evictions at most 0", Got: "3"})
	expect.Slice(t, r.Broken(), []string{"many, cp: every node answers at the end, but got node2 did not"}, "broken:")
}

func TestRoundsThatWereNotCompletedAreCounted(t *testing.T) {
	r := lossy(map[string]map[string][]int{"crash": {"cp": {0, 0, 0}}})
	r.Trials[2].Failed = "node1 did not start"
	expect.Equal(t, words(rowOf(t, r, "Registrations lost, worst scenario"))[0], "0 (n=2; 1 not completed; of 100 registrations)", "cell:")
	expect.That(t, strings.Contains(r.evidence(), " 3 trials (2 count) of 1 scenario, 2 rounds of "), "evidence: %s", r.evidence())
}

// What a Java machine that has just started spends says little of the server in it.
func TestCostsOfAJavaMachineAreNotHeldAgainstOthers(t *testing.T) {
	loads := []scenario.Scenario{beats("idle", 1, 30*time.Second), beats("thousand", 1001, time.Second)}
	r := &Report{Comparison: &trial.Comparison{Scenarios: loads, Plan: trial.Plan{Columns: scenario.Columns()[:3]}}}
	for _, s := range loads {
		for i, c := range r.Plan.Columns {
			for round := range 2 {
				rate := float64(s.Load.Instances - 1)
				r.Trials = append(r.Trials, trial.Trial{Scenario: s.Name, Column: c.Name, Round: round + 1})
				r.Verdicts = append(r.Verdicts, verdict.Verdict{Cost: verdict.Cost{Renewals: rate, CPU: 0.01 + rate*float64(i+1)/1000, Memory: 1, MemoryPerInstances: float64(4 - i)}})
			}
		}
	}
	cpu := rowOf(t, r, "Processor time of all nodes for 1,000 renewals, at 1,001 a second")
	expect.Slice(t, words(cpu), []string{"* 1 s (n=2)", "2 s (n=2)", "3 s (n=2; not compared: just started, the first compiler alone)"}, "processors:")
	expect.Slice(t, words(rowOf(t, r, "Memory of a node for 1,000 instances")), []string{"4 B (n=2)", "* 3 B (n=2)", "cannot be told: garbage is in it"}, "memory:")
	expect.That(t, strings.Contains(r.evidence(), "Processor times and latencies of Eureka are compared with nothing"), "evidence: %s", r.evidence())
	expect.That(t, strings.Contains(r.fleetAbout(), "fetch the registry, which is not in it"), "fleet: %s", r.fleetAbout())
}

func TestEvidenceSaysHowFarTheFiguresReach(t *testing.T) {
	got := judgedSample().evidence()
	for _, want := range []string{"Sample CPU @ 2.5 GHz, 4 cores", "3 rounds of 15 s each", "Leases of 3 s, where stock clients ask for 90 s", "links have no latency", "3 limits were broken"} {
		expect.That(t, strings.Contains(got, want), "%q is not in %s", want, got)
		for _, file := range []string{MarkdownFile, HTMLFile} {
			expect.That(t, strings.Contains(strings.ReplaceAll(sampleFiles()[file], "\u00a0", " "), want), "%s does not show %q", file, want)
		}
	}
}

func TestWhatAColumnCannotDoIsSaid(t *testing.T) {
	s, _ := fault(scenario.Fault{Kind: scenario.SlowDisk, Nodes: "all"}, []int{0}, 0)
	s.Title = "Slow disks"
	r := story{scenario: s, cp: []verdict.Verdict{{Writes: done(1, 0)}}}.report()
	expect.Slice(t, r.matrix()[0].Absent, []string{"Not run: AP", "Eureka writes to no disk that could be slow"}, "matrix:")
	expect.Slice(t, r.lacking(), []string{"Eureka writes to no disk that could be slow, so it did not run Slow disks."}, "sentences:")
}

func TestColumnsHaveClassesOfAFewWords(t *testing.T) {
	own := []scenario.Column{{Name: `x" onload="alert(1)`}, {Name: "ap", Title: "AP"}, {Name: "more-0"}, {Name: "eureka"}}
	r := &Report{Comparison: &trial.Comparison{Plan: trial.Plan{Columns: own}, Trials: []trial.Trial{{Column: "late"}}}}
	var classes []string
	for _, c := range r.columns() {
		classes = append(classes, c.Class)
	}
	expect.Slice(t, classes, []string{"more-0", "ap", "more-1", "eureka", "more-2"}, "classes:")
}

func TestHistoriesSayHowMuchTheyProve(t *testing.T) {
	s := scenario.Scenario{Load: scenario.Load{KeyWriters: 20}}
	h := func(result verdict.Result, violated ...string) verdict.Verdict {
		return verdict.Verdict{History: verdict.History{Result: result, Keys: 4, Overlapping: 1234, Unknown: 56, Violated: violated, Example: &verdict.Counterexample{Key: "k"}}}
	}
	r := story{scenario: s, cp: []verdict.Verdict{h(verdict.OK), h(verdict.Violated, "k")}, ap: []verdict.Verdict{h(verdict.Unpromised)}}.report()
	expect.Slice(t, words(rowOf(t, r, "Watched keys whose history no single copy explains, where many clients write each at once")), []string{
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
	expect.Equal(t, aimed(of), "", "kills that nothing was aimed at:")
	of.scenario.Faults = []scenario.Fault{{Kind: scenario.Kill, Times: 2}}
	expect.Equal(t, aimed(of), "3 of 4 kills amid writes", "aimed kills:")
}

func TestResultsThatDifferSayInHowManyRounds(t *testing.T) {
	var of runs
	for _, result := range []verdict.Result{verdict.Violated, verdict.OK, verdict.OK} {
		of.of = append(of.of, run{new(trial.Trial), &verdict.Verdict{Converged: verdict.Convergence{Result: result}}})
	}
	converged := func(v *verdict.Verdict) verdict.Result { return v.Converged.Result }
	expect.Equal(t, results(of, converged), "ok in 2, violated in 1", "rounds that differ:")
	of.of = of.of[1:]
	expect.Equal(t, results(of, converged), "ok", "rounds that do not:")
}

func TestNotesSayWhatAFigureLeavesOpen(t *testing.T) {
	open := verdict.Verdict{
		Writes: verdict.Calls{Count: 1, LongestGap: 9, OpenGap: true},
		Worst:  map[trial.Operation]verdict.Worst{trial.Fetch: {Clients: 1, Gap: 9, Open: true}},
		Losses: verdict.Losses{Cancels: verdict.Loss{Of: 3, Unjudged: 7}},
	}
	of := runs{of: []run{{verdict: &open}, {verdict: new(verdict.Verdict)}}}
	for _, c := range []struct {
		figure figure
		want   string
	}{
		{writeGap(), "at least: in 1 of 2 no answer ended it"},
		{worstGap(trial.Fetch), "at least: in 1 of 2 no answer ended it"},
		{lossKinds[2].figure(), "7 more could not be judged: a node did not answer"},
	} {
		notes := c.figure.notes(of)
		expect.That(t, slices.Contains(notes, c.want), "%s has the notes %q, want %q among them", c.figure.name, notes, c.want)
	}
	open.Losses.Cancels.Of = 0
	expect.Equal(t, lossKinds[2].figure().absent(of), "not judged: a node did not answer", "where none was judged:")
	expect.Equal(t, lossKinds[0].figure().absent(of), none, "where there was none:")
}

func TestFigureOfListsIsNotKnownWithoutLists(t *testing.T) {
	for _, f := range []figure{missing(), unanswered(), inLists("gone", showSum, func(v *verdict.Verdict) float64 { return v.Ghosts })} {
		for _, listed := range []bool{true, false} {
			_, known := f.get(run{verdict: &verdict.Verdict{Listed: listed}})
			expect.Equal(t, known, listed, "%s is known:", f.name)
		}
	}
}
