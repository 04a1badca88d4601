package report

import (
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
	"github.com/seed-20419f34/rollcall/internal/expect"
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
	healed := func(s float64) []verdict.Healing { return []verdict.Healing{{Seconds: s}} }
	for _, c := range []struct {
		name   string
		fault  scenario.Fault
		nodes  []int
		count  int
		cp, ap verdict.Verdict
		want   []string
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
			want: []string{
				"In the 6 s in which node1 was cut off, CP refused 412 writes on the side cut off (all of them from 1.2 s after the cut on), answered 5 more only when it was over, " +
					"answered 10.0 % of the reads there, none of them stale, and listed everything again 400 ms after healing.",
				"AP accepted all 398 writes on the side cut off, answered all reads there, 31.0 % of the probes of watched keys up to 5.6 s stale, and listed everything again 1.3 s after healing.",
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
			want: []string{
				"In the 6 s in which the leader (the first node, where none leads) was cut off, CP refused 6 writes on the side cut off and accepted none, left 3 in doubt, answered no read there, " +
					"answered no write on the other side for 2.1 s, elected 1 new leader (for 1.5 s no node named one), and did not list everything again before the trial ended.",
			},
		},
		{
			name: "kill", fault: scenario.Fault{Kind: scenario.Kill, Nodes: "leader"}, nodes: []int{0},
			cp: verdict.Verdict{
				Writes: gap(done(900, 100), 2.5), Reads: gap(done(500, 0), 0.1), Staleness: stale(0, 0), Elections: 2, Leaderless: 2, Healing: healed(0.3),
				Sides: []verdict.Side{{Struck: true, Writes: done(1, 1)}},
			},
			ap: verdict.Verdict{Writes: gap(done(990, 10), 0.2), Reads: gap(done(500, 0), 0.1), Staleness: stale(2, 0.05), Healing: healed(1.1)},
			want: []string{
				"When the leader (the first node, where none leads) was killed and started again 6 s later, CP answered no write for 2.5 s but went on answering reads, gave no stale answer, " +
					"answered 50.0 % of the writes of clients connected there, elected 2 new leaders (for 2 s no node named one), and listed everything again 300 ms after the restart.",
				"AP went on answering writes and reads, gave 2.0 % of its answers to probes of watched keys stale, by up to 50 ms, and listed everything again 1.1 s after the restart.",
			},
		},
		{
			name: "restart", fault: scenario.Fault{Kind: scenario.Restart, Nodes: "all"}, nodes: []int{0, 1, 2},
			cp: verdict.Verdict{Writes: gap(done(900, 100), 3), Reads: gap(done(500, 0), 2.8)},
			ap: verdict.Verdict{Writes: gap(done(900, 100), 0.1), Reads: gap(done(500, 0), 0.9)},
			want: []string{
				"When all nodes were stopped and started again 6 s later, CP answered no write for 3 s and no read for 2.8 s.",
				"AP answered no read for 900 ms but went on answering writes.",
			},
		},
		{
			name: "pause", fault: scenario.Fault{Kind: scenario.Pause, Nodes: "dc1"}, nodes: []int{0, 2},
			cp:   verdict.Verdict{Writes: done(9, 0), Healing: healed(0)},
			want: []string{"When node1 and node3 were paused for 6 s, CP went on answering writes and reads and listed everything again at once after the pause."},
		},
		{
			name: "cut-link", fault: scenario.Fault{Kind: scenario.CutLink}, nodes: []int{3, 4, 5},
			cp: verdict.Verdict{
				During: []verdict.Side{{Writes: done(2000, 0), Reads: done(80, 0), Staleness: stale(40, 5)}},
				Abroad: map[trial.Way]verdict.Spread{trial.ByRead: {Count: 9, P99: 6.5}, trial.ByList: {Count: 9, P99: 7}}, Healing: healed(0.9),
			},
			want: []string{
				"In the 6 s in which the datacenters were cut off from each other, CP accepted all 2,000 writes on both sides, " +
					"answered all reads there, 40.0 % of the probes of watched keys up to 5 s stale, showed 99 % of the registrations on the other side to reads within 6.5 s and in lists within 7 s, " +
					"and listed everything again 900 ms after the links were back.",
			},
		},
		{
			name: "slow-disk", fault: scenario.Fault{Kind: scenario.SlowDisk, Nodes: "all", Delay: scenario.Span(20 * time.Millisecond)}, nodes: []int{0, 1, 2},
			cp:   verdict.Verdict{During: []verdict.Side{{Writes: done(300, 100), Reads: done(80, 0)}}},
			ap:   verdict.Verdict{During: []verdict.Side{{Writes: done(400, 0), Reads: done(0, 80)}}},
			want: []string{"In the 6 s in which each durable write took 20 ms longer, CP answered 75.0 % of 400 writes per second, 99 % within 2 ms, and all 80 reads per second, 99 % within 2 ms.", "AP answered all 400 writes per second, 99 % within 2 ms, and no read."},
		},
		{
			name: "all that died are removed", fault: scenario.Fault{Kind: scenario.Die, Instances: "10%"}, count: 30,
			cp:   verdict.Verdict{Removal: verdict.Spread{Count: 30, Max: 4.2}},
			ap:   verdict.Verdict{Removal: verdict.Spread{Count: 28, Never: 2, Max: 9}, FalseEvictions: 1},
			want: []string{"When 30 instances died, CP listed none of them longer than 4.2 s after the last heartbeat and evicted no living instance.", "AP listed 28 of them for up to 9 s after the last heartbeat and 2 of them until the end.", "AP evicted 1 living instance."},
		},
		{
			name: "self-preservation", fault: scenario.Fault{Kind: scenario.Die, Instances: "50%"}, count: 150,
			cp:   verdict.Verdict{Removal: verdict.Spread{Never: 150}},
			want: []string{"When 150 instances died, CP listed all of them until the end, for self-preservation withholds evictions while so many leases are overdue, and evicted no living instance."},
		},
		{
			name: "one dies", fault: scenario.Fault{Kind: scenario.Die, Instances: "1"}, count: 1,
			cp:   verdict.Verdict{Removal: verdict.Spread{Count: 1, Max: 4}},
			ap:   verdict.Verdict{Removal: verdict.Spread{Never: 1}},
			want: []string{"When 1 instance died, CP listed it no longer than 4 s after the last heartbeat and evicted no living instance.", "AP listed it until the end and evicted no living instance."},
		},
		{
			name: "silence", fault: scenario.Fault{Kind: scenario.Silence, Instances: "100%"}, count: 300,
			cp:   verdict.Verdict{During: []verdict.Side{{Reads: done(80, 0)}}, Operations: map[trial.Operation]verdict.Calls{trial.Register: done(300, 0)}, Missing: 12},
			want: []string{"When the clients of 300 instances restarted, silent for 6 s, CP answered all reads meanwhile, took 99 % of the registrations within 2 ms, and evicted no living instance.", "CP lacked living instances in lists for 12 instance-seconds a node."},
		},
		{
			name: "flap", fault: scenario.Fault{Kind: scenario.Flap, Instances: "10%"}, count: 30,
			cp:   verdict.Verdict{During: []verdict.Side{{}}, Ghosts: 1.5, Missing: 0.25, Healing: healed(0.1)},
			want: []string{"In the 6 s in which 30 instances canceled and registered again every second, CP listed canceled ones for 1.5 instance-seconds a node, lacked registered ones for 0.25, and listed everything again 100 ms after they settled."},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, injected := fault(c.fault, c.nodes, c.count)
			tale := story{scenario: s, injected: injected, cp: []verdict.Verdict{c.cp}, ap: []verdict.Verdict{c.ap}}
			same(t, tale.report().sentences("story"), c.want)
		})
	}
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
	for _, c := range []struct {
		name   string
		cp, ap verdict.Verdict
		want   []string
	}{
		{"a history that is not linearizable",
			verdict.Verdict{History: verdict.History{Result: verdict.Violated, Example: &verdict.Counterexample{Text: "a read was stale"}}}, verdict.Verdict{},
			[]string{"CP was not linearizable: a read was stale."}},
		{"a checker that ran out of time", verdict.Verdict{History: verdict.History{Result: verdict.Undecided}}, verdict.Verdict{},
			[]string{"Whether CP was linearizable is undecided: the checker ran out of time."}},
		{"a key that was never read", verdict.Verdict{History: verdict.History{Result: verdict.Undecided, Unread: []string{"own-1"}}}, verdict.Verdict{},
			[]string{"Whether CP was linearizable is undecided: 1 instance (own-1) written, and never read."}},
		{"nodes that differ", verdict.Verdict{}, verdict.Verdict{Converged: verdict.Convergence{Result: verdict.Violated, Text: "of own-1, node1 holds version 2"}},
			[]string{"AP did not converge by the rule: of own-1, node1 holds version 2."}},
		{"convergence that is not known", verdict.Verdict{}, verdict.Verdict{Converged: verdict.Convergence{Result: verdict.Undecided, Text: "2 of 3 nodes could be asked at the end"}},
			[]string{"Whether AP converged is undecided: 2 of 3 nodes could be asked at the end."}},
		{"losses of one column", verdict.Verdict{Losses: verdict.Losses{Cancels: verdict.Loss{Of: 5}}}, verdict.Verdict{Revived: []string{"b", "c"}, Losses: verdict.Losses{
			Registrations: verdict.Loss{Of: 50, Count: 2, Age: verdict.Spread{Count: 2, Max: 0.4}}, Rollbacks: verdict.Loss{Of: 9, Count: 1},
		}},
			[]string{"CP lost nothing that was acknowledged.", "AP lost 2 registrations, acknowledged up to 400 ms before the kill, rolled back 1 version of watched keys, and listed 2 canceled instances again."}},
		{"what is absent at the end", verdict.Verdict{Lost: []string{"a"}}, verdict.Verdict{Lost: []string{"a", "b"}},
			[]string{"CP lacked 1 living instance at the end.", "AP lacked 2 living instances at the end."}},
		{"false evictions", verdict.Verdict{FalseEvictions: 3, Missing: 7, Unanswered: 0.5}, verdict.Verdict{},
			[]string{"CP evicted 3 living instances and lacked living instances in lists for 7 instance-seconds a node, with no list at all for 500 ms."}},
	} {
		t.Run(c.name, func(t *testing.T) {
			same(t, story{cp: []verdict.Verdict{c.cp}, ap: []verdict.Verdict{c.ap}}.report().sentences("story"), c.want)
		})
	}
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
