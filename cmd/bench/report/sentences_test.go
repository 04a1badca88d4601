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
	"github.com/seed-20419f34/rollcall/internal/golden"
)

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

// done are calls of which so many were answered and so many refused, in a second.
func done(answered, refused int) verdict.Calls {
	c := verdict.Calls{Count: answered + refused, Success: 1, PerSecond: float64(answered), Outcomes: map[trial.Outcome]int{trial.Done: answered, trial.Refused: refused}}
	if c.Count > 0 {
		c.Success = float64(answered) / float64(c.Count)
	}
	c.Latency = verdict.Spread{Count: answered, P50: 0.001, P99: 0.002}
	return c
}

// gap are calls as those given, with such a gap.
func gap(c verdict.Calls, seconds float64) verdict.Calls {
	c.LongestGap = seconds
	return c
}

// overdue are calls as those given, of which so many were answered late.
func overdue(c verdict.Calls, late int) verdict.Calls {
	c.Late = late
	return c
}

// stale is of 100 reads so many stale ones.
func stale(count int, oldest float64) verdict.Staleness {
	return verdict.Staleness{Reads: 100, Stale: count, Share: float64(count) / 100, Age: verdict.Spread{Count: count, Max: oldest}}
}

// fault is one of a kind, injected from second 2 to second 8.
func fault(f scenario.Fault, nodes []int, count int) (scenario.Scenario, []trial.Fault) {
	s := scenario.Scenario{Load: scenario.Load{Instances: 300}, Faults: []scenario.Fault{f}}
	return s, []trial.Fault{{Kind: f.Kind, Nodes: nodes, From: 2 * second, To: 8 * second, Count: count}}
}

func TestSentencesOfFaults(t *testing.T) {
	said := ""
	healed := func(s float64) []verdict.Healing { return []verdict.Healing{{Seconds: s}} }
	for _, c := range []struct {
		name   string
		fault  scenario.Fault
		nodes  []int
		count  int
		cp, ap verdict.Verdict
	}{
		{
			name: "isolate", fault: scenario.Fault{Kind: scenario.Isolate, Nodes: "follower"}, nodes: []int{0},
			cp: verdict.Verdict{
				Sides: []verdict.Side{
					{Struck: true, Writes: overdue(done(12, 412), 5), Reads: overdue(done(15, 85), 5), Staleness: stale(0, 0), NoWrites: 1.2},
					{Writes: gap(done(700, 0), 0.1)},
				},
				Healing: healed(0.4),
			},
			ap: verdict.Verdict{
				Sides:   []verdict.Side{{Struck: true, Writes: done(398, 0), Reads: done(100, 0), Staleness: stale(31, 5.6), NoWrites: -1}},
				Healing: healed(1.3),
			},
		},
		{
			name: "isolate the leader", fault: scenario.Fault{Kind: scenario.Isolate, Nodes: "leader"}, nodes: []int{0},
			cp: verdict.Verdict{
				Sides: []verdict.Side{
					{Struck: true, Writes: verdict.Calls{Count: 9, Success: 0, Outcomes: map[trial.Outcome]int{trial.Refused: 6, trial.Unknown: 3}}, Reads: done(0, 7)},
					{Writes: gap(done(700, 80), 2.1)},
				},
				Elections: 1, Leaderless: 1.5, Healing: healed(-1),
			},
		},
		{
			name: "kill", fault: scenario.Fault{Kind: scenario.Kill, Nodes: "leader"}, nodes: []int{0},
			cp: verdict.Verdict{
				Writes: gap(done(900, 100), 2.5), Reads: gap(done(500, 0), 0.1), Staleness: stale(0, 0), Elections: 2, Leaderless: 2, Healing: healed(0.3),
				Sides: []verdict.Side{{Struck: true, Writes: done(1, 1)}},
			},
			ap: verdict.Verdict{Writes: gap(done(990, 10), 0.2), Reads: gap(done(500, 0), 0.1), Staleness: stale(2, 0.05), Healing: healed(1.1)},
		},
		{
			name: "restart", fault: scenario.Fault{Kind: scenario.Restart, Nodes: "all"}, nodes: []int{0, 1, 2},
			cp: verdict.Verdict{Writes: gap(done(900, 100), 3), Reads: gap(done(500, 0), 2.8)},
			ap: verdict.Verdict{Writes: gap(done(900, 100), 0.1), Reads: gap(done(500, 0), 0.9)},
		},
		{
			name: "pause", fault: scenario.Fault{Kind: scenario.Pause, Nodes: "dc1"}, nodes: []int{0, 2},
			cp: verdict.Verdict{Writes: done(9, 0), Healing: healed(0)},
		},
		{
			name: "cut-link", fault: scenario.Fault{Kind: scenario.CutLink}, nodes: []int{3, 4, 5},
			cp: verdict.Verdict{
				During: []verdict.Side{{Writes: done(2000, 0), Reads: done(80, 0), Staleness: stale(40, 5)}},
				Abroad: map[trial.Way]verdict.Spread{trial.ByRead: {Count: 9, P99: 6.5}, trial.ByList: {Count: 9, P99: 7}}, Healing: healed(0.9),
			},
		},
		{
			name: "slow-disk", fault: scenario.Fault{Kind: scenario.SlowDisk, Nodes: "all", Delay: scenario.Span(20 * time.Millisecond)}, nodes: []int{0, 1, 2},
			cp: verdict.Verdict{During: []verdict.Side{{Writes: done(300, 100), Reads: done(80, 0)}}},
			ap: verdict.Verdict{During: []verdict.Side{{Writes: done(400, 0), Reads: done(0, 80)}}},
		},
		{
			name: "all that died are removed", fault: scenario.Fault{Kind: scenario.Die, Instances: "10%"}, count: 30,
			cp: verdict.Verdict{Removal: verdict.Spread{Count: 30, Max: 4.2}},
			ap: verdict.Verdict{Removal: verdict.Spread{Count: 28, Never: 2, Max: 9}, FalseEvictions: 1},
		},
		{
			name: "self-preservation", fault: scenario.Fault{Kind: scenario.Die, Instances: "50%"}, count: 150,
			cp: verdict.Verdict{Removal: verdict.Spread{Never: 150}},
		},
		{
			name: "one dies", fault: scenario.Fault{Kind: scenario.Die, Instances: "1"}, count: 1,
			cp: verdict.Verdict{Removal: verdict.Spread{Count: 1, Max: 4}},
			ap: verdict.Verdict{Removal: verdict.Spread{Never: 1}},
		},
		{
			name: "silence", fault: scenario.Fault{Kind: scenario.Silence, Instances: "100%"}, count: 300,
			cp: verdict.Verdict{During: []verdict.Side{{Reads: done(80, 0)}}, Operations: map[trial.Operation]verdict.Calls{trial.Register: done(300, 0)}, Missing: 12},
		},
		{
			name: "flap", fault: scenario.Fault{Kind: scenario.Flap, Instances: "10%"}, count: 30,
			cp: verdict.Verdict{During: []verdict.Side{{}}, Ghosts: 1.5, Missing: 0.25, Healing: healed(0.1)},
		},
	} {
		s, injected := fault(c.fault, c.nodes, c.count)
		tale := story{scenario: s, injected: injected, cp: []verdict.Verdict{c.cp}, ap: []verdict.Verdict{c.ap}}
		said += "== " + c.name + "\n" + strings.Join(tale.report().sentences("story"), "\n") + "\n"
	}
	golden.Page(t, "testdata/sentences.txt", said)
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("missing:\n%s", want[i])
		case i >= len(want):
			t.Errorf("not expected:\n%s", got[i])
		case got[i] != want[i]:
			t.Errorf("got:\n%s\nwant:\n%s", got[i], want[i])
		}
	}
}

func TestSentencesOfAStorm(t *testing.T) {
	s := scenario.Scenario{Storms: []scenario.Storm{{For: scenario.Moment{Percent: 40}, Load: map[string]float64{"reads": 1500, "deltas": 200}}}}
	tale := story{scenario: s,
		cp: []verdict.Verdict{{Storms: []verdict.Side{{Reads: done(1500, 0), Staleness: stale(0, 0)}}}},
		ap: []verdict.Verdict{{Storms: []verdict.Side{{Reads: done(1200, 300), Staleness: stale(1, 0.2)}}}},
	}
	same(t, tale.report().sentences("story"), []string{
		"In the 4 s of the storm (200 deltas per second and 1,500 reads per second), CP answered all 1,500 reads per second, 99 % within 2 ms, and gave no stale answer.",
		"AP answered 80.0 % of 1,500 reads per second, 99 % within 2 ms, and gave 1.0 % of its answers to probes of watched keys stale, by up to 200 ms.",
	})
}

func TestSentencesOfColumnsThatDidTheSameAreOne(t *testing.T) {
	v := verdict.Verdict{Writes: done(300, 0), Reads: done(175, 0)}
	other := verdict.Verdict{Writes: done(300, 100), Reads: done(175, 0)}
	tale := story{cp: []verdict.Verdict{v}, ap: []verdict.Verdict{other}, eureka: []verdict.Verdict{v}}
	same(t, tale.report().sentences("story"), []string{
		"While nothing failed, CP and Eureka answered all 300 writes per second, 99 % within 2 ms, and all 175 reads per second, 99 % within 2 ms.",
		"AP answered 75.0 % of 400 writes per second, 99 % within 2 ms, and all 175 reads per second, 99 % within 2 ms.",
	})
}

func TestSentencesSayWhatIsBad(t *testing.T) {
	said := ""
	for _, c := range []struct {
		name   string
		cp, ap verdict.Verdict
	}{
		{"a history that is not linearizable",
			verdict.Verdict{History: verdict.History{Result: verdict.Violated, Example: &verdict.Counterexample{Text: "a read was stale"}}}, verdict.Verdict{}},
		{"a checker that ran out of time", verdict.Verdict{History: verdict.History{Result: verdict.Undecided}}, verdict.Verdict{}},
		{"a key that was never read", verdict.Verdict{History: verdict.History{Result: verdict.Undecided, Unread: []string{"own-1"}}}, verdict.Verdict{}},
		{"nodes that differ", verdict.Verdict{}, verdict.Verdict{Converged: verdict.Convergence{Result: verdict.Violated, Text: "of own-1, node1 holds version 2"}}},
		{"convergence that is not known", verdict.Verdict{}, verdict.Verdict{Converged: verdict.Convergence{Result: verdict.Undecided, Text: "2 of 3 nodes could be asked at the end"}}},
		{"losses of one column", verdict.Verdict{Losses: verdict.Losses{Cancels: verdict.Loss{Of: 5}}}, verdict.Verdict{Revived: []string{"b", "c"}, Losses: verdict.Losses{
			Registrations: verdict.Loss{Of: 50, Count: 2, Age: verdict.Spread{Count: 2, Max: 0.4}}, Rollbacks: verdict.Loss{Of: 9, Count: 1},
		}}},
		{"what is absent at the end", verdict.Verdict{Lost: []string{"a"}}, verdict.Verdict{Lost: []string{"a", "b"}}},
		{"false evictions", verdict.Verdict{FalseEvictions: 3, Missing: 7, Unanswered: 0.5}, verdict.Verdict{}},
	} {
		said += "== " + c.name + "\n" + strings.Join(story{cp: []verdict.Verdict{c.cp}, ap: []verdict.Verdict{c.ap}}.report().sentences("story"), "\n") + "\n"
	}
	golden.Page(t, "testdata/bad.txt", said)
}

func TestSentencesNameTrialsThatFailed(t *testing.T) {
	r := story{cp: []verdict.Verdict{{Writes: done(1, 0)}}}.report()
	r.Trials[0].Failed = "node2 did not start."
	same(t, r.sentences("story"), []string{"Round 1 of CP could not be completed: node2 did not start."})
}

func TestSentencesUseTheWordsForNumbersAndSpans(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{amount(0, "write"), "no write"},
		{amount(1, "write"), "1 write"},
		{amount(1412, "write"), "1,412 writes"},
		{plural("key"), "keys"},
		{plural("query"), "queries"},
		{perRound{3, 1, 2}.counted("read"), "2 reads (1 to 3)"},
		{perRound{2, 2}.counted("read"), "2 reads"},
		{perRound{1}.all("read"), "the only read"},
		{perRound{0}.all("read"), "no read"},
		{perRound{5}.all("read"), "all 5 reads"},
		{perRound{0.5, 0.25, 1}.show(showSeconds), "500 ms (250 ms to 1 s)"},
		{list(nil), ""},
		{list([]string{"a"}), "a"},
		{list([]string{"a", "b"}), "a and b"},
		{list([]string{"a, of b", "c"}), "a, of b, and c"},
		{list([]string{"a", "b", "c"}), "a, b, and c"},
		{capital("éa"), "Éa"},
	} {
		expect.Equal(t, c.got, c.want, "got")
	}
}

func TestFaultSentenceNamesNoNodeWhereRoundsDiffer(t *testing.T) {
	s, injected := fault(scenario.Fault{Kind: scenario.Pause, Nodes: "follower"}, []int{1}, 0)
	r := story{scenario: s, injected: injected, cp: []verdict.Verdict{{Writes: done(9, 0)}, {Writes: done(9, 0)}}}.report()
	r.Trials[1].Faults = slices.Clone(injected)
	r.Trials[1].Faults[0].Nodes = []int{2}
	want := "When a node that does not lead was paused for 6 s, CP went on answering writes and reads."
	got := r.sentences("story")[0]
	expect.That(t, got == want, "got:\n%s\nwant:\n%s", got, want)
}
