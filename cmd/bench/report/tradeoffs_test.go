package report

import (
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

func TestTradeOffs(t *testing.T) {
	calmLoad := scenario.Scenario{Load: scenario.Load{Reads: 150}}
	isolated, cut := fault(scenario.Fault{Kind: scenario.Isolate, Nodes: "follower"}, []int{0}, 0)
	killed, _ := fault(scenario.Fault{Kind: scenario.Kill, Nodes: "leader"}, []int{0}, 0)
	dead, _ := fault(scenario.Fault{Kind: scenario.Die}, nil, 30)
	dead.Load.Lease = scenario.Span(3 * time.Second)
	struck := func(writes verdict.Calls, s verdict.Staleness) verdict.Verdict {
		return verdict.Verdict{Sides: []verdict.Side{{Struck: true, Writes: writes, Staleness: s}, {Writes: done(50, 50), Staleness: stale(99, 9)}}}
	}
	seen := func(p50, p99 float64) verdict.Verdict {
		return verdict.Verdict{Visibility: map[trial.Way]verdict.Spread{trial.ByList: {Count: 5, P50: p50, P99: p99}}}
	}
	for _, c := range []struct {
		name     string
		scenario scenario.Scenario
		cp, ap   []verdict.Verdict
		want     tradeOff
	}{
		{"more writes on the side cut off are better", isolated,
			[]verdict.Verdict{struck(overdue(done(15, 85), 5), verdict.Staleness{})}, []verdict.Verdict{struck(done(100, 0), verdict.Staleness{})},
			tradeOff{"Writes accepted on the minority side of a partition", "10.0 %", "100 %", "ap"}},
		{"fewer stale reads are better", isolated,
			[]verdict.Verdict{struck(done(1, 0), stale(0, 0))}, []verdict.Verdict{struck(done(1, 0), stale(31, 5.6))},
			tradeOff{"Stale reads there, and the oldest", "none", "31.0 %, 5.6 s", "cp"}},
		{"a mode without data is no better", isolated,
			[]verdict.Verdict{struck(done(1, 0), verdict.Staleness{})}, []verdict.Verdict{struck(done(1, 0), stale(31, 5.6))},
			tradeOff{"Stale reads there, and the oldest", "–", "31.0 %, 5.6 s", ""}},
		{"the median of rounds, with their range", killed,
			[]verdict.Verdict{{Writes: gap(done(1, 1), 2)}, {Writes: gap(done(1, 1), 4)}, {Writes: gap(done(1, 1), 3)}}, []verdict.Verdict{{Writes: gap(done(1, 1), 0.1)}},
			tradeOff{"Longest time without a write when the leader (AP: the first node) is killed", "3 s (2 s to 4 s)", "100 ms", "ap"}},
		{"what differs by less than a tenth is equal", calmLoad,
			[]verdict.Verdict{seen(0.1, 0.2)}, []verdict.Verdict{seen(0.05, 0.21)},
			tradeOff{"… in a list, p50 / p99", "100 ms / 200 ms", "50 ms / 210 ms", ""}},
		{"the dead where self-preservation kept them do not count", dead,
			[]verdict.Verdict{{Removal: verdict.Spread{Count: 30, P99: 4}}, {Removal: verdict.Spread{Count: 1, Never: 149, P99: 9}}}, []verdict.Verdict{{Removal: verdict.Spread{Count: 30, P99: 8}}},
			tradeOff{"A dead instance is gone from every list, p99 (stock Eureka: 180 s); leases here 3 s, there 90 s", "4 s", "8 s", "cp"}},
		{"what did not heal is worst", isolated,
			[]verdict.Verdict{{Healing: []verdict.Healing{{Seconds: 1}, {Seconds: -1}}}}, []verdict.Verdict{{Healing: []verdict.Healing{{Seconds: 30}}}},
			tradeOff{"Converged after a fault was healed, at the latest", "1 of 2 not within the trial", "30 s", "ap"}},
		{"losses are added up", calmLoad,
			[]verdict.Verdict{{}, {}}, []verdict.Verdict{{Lost: []string{"a"}}, {Lost: []string{"a"}, Converged: verdict.Convergence{Lost: []string{"own-1"}}}},
			tradeOff{"Acknowledged writes lost or revived once clients have gone on and all has settled, in all scenarios", "0", "3", "cp"}},
		{"histories are promised by one mode", calmLoad,
			[]verdict.Verdict{{History: verdict.History{Result: verdict.Violated, Keys: 18, Violated: []string{"own-1"}}}}, []verdict.Verdict{{History: verdict.History{Result: verdict.Unpromised}}},
			tradeOff{"Watched keys whose history a single copy explains", "17 of 18", "not promised", "cp"}},
		{"cost, where it is known", calmLoad,
			[]verdict.Verdict{{Cost: verdict.Cost{BytesPerRenewals: 3000}}, {}}, []verdict.Verdict{{Cost: verdict.Cost{BytesPerRenewals: 2e6}}},
			tradeOff{"Bytes between nodes for 1,000 renewals", "3 kB", "2 MB", "cp"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := story{scenario: c.scenario, injected: cut, cp: c.cp, ap: c.ap}.report().tradeOffs()
			at := slices.IndexFunc(table, func(o tradeOff) bool { return o.Question == c.want.Question })
			if at < 0 || table[at] != c.want {
				t.Errorf("the table is %q, want %q in it", table, c.want)
			}
		})
	}
}

func TestTradeOffsWithoutDataAreLeftOut(t *testing.T) {
	s, _ := fault(scenario.Fault{Kind: scenario.Kill, Nodes: "leader"}, nil, 0)
	if table := (story{scenario: s}).report().tradeOffs(); len(table) != 0 {
		t.Errorf("a table of nothing: %q", table)
	}
	table := story{cp: []verdict.Verdict{{}}}.report().tradeOffs()
	for _, o := range table {
		if o.CP == "–" && o.AP == "–" {
			t.Errorf("%q is asked, and nobody answers", o.Question)
		}
	}
	if slices.ContainsFunc(table, func(o tradeOff) bool { return o.Question == "CPU of all nodes for 1,000 renewals" }) {
		t.Error("there is a line of a cost that is not known")
	}
}
