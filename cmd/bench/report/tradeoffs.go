package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// tradeOff is one line of the table that helps to choose.
type tradeOff struct {
	Question string // as in "Writes accepted by a minority"
	CP, AP   string // what was measured, with units
	Better   string // "cp", "ap", or empty where neither is
}

// tradeOffs are the table, over all scenarios. Lines for which neither mode has data are left out.
func (r *Report) tradeOffs() []tradeOff {
	var table []tradeOff
	for _, q := range questions() {
		cp, ap := q.ask(r, scenario.CP), q.ask(r, scenario.AP)
		if cp.text == "" && ap.text == "" {
			continue
		}
		table = append(table, tradeOff{Question: q.asked(r), CP: orDash(cp.text), AP: orDash(ap.text), Better: q.better(cp, ap)})
	}
	return table
}

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

// question is a line of the table before it is answered.
type question struct {
	text string
	note func([]scenario.Scenario) string // what is to be known of the scenarios; nil: nothing
	in   func(scenario.Scenario) bool     // the scenarios whose trials answer it
	most bool                             // more is better; otherwise less
	of   func([]run) reply
}

// reply is what the trials of one mode answer: in words, and as a number that can be compared. Empty: nothing.
type reply struct {
	text  string
	value float64
}

// asked is the question in words.
func (q question) asked(r *Report) string {
	if q.note == nil {
		return q.text
	}
	return q.text + q.note(slices.DeleteFunc(slices.Clone(r.Scenarios), func(s scenario.Scenario) bool { return !q.in(s) }))
}

// leases says how long the instances' are, if they are all alike: stock Eureka's 180 s are for 90 s.
func leases(scenarios []scenario.Scenario) string {
	lease := scenarios[0].Load.Lease
	if slices.ContainsFunc(scenarios, func(s scenario.Scenario) bool { return s.Load.Lease != lease }) {
		return ""
	}
	return fmt.Sprintf("; leases here %s, there 90 s", showSeconds(lease.Duration().Seconds()))
}

func (q question) ask(r *Report, mode scenario.Mode) reply {
	var trials []run
	for _, s := range r.Scenarios {
		if q.in(s) {
			trials = append(trials, r.runs(s.Name, mode).of...)
		}
	}
	if len(trials) == 0 {
		return reply{}
	}
	return q.of(trials)
}

// better is the mode with the better value, if it is so by more than a tenth: trials differ by as much.
func (q question) better(cp, ap reply) string {
	if cp.text == "" || ap.text == "" {
		return ""
	}
	if math.Abs(cp.value-ap.value) <= 0.1*max(math.Abs(cp.value), math.Abs(ap.value)) {
		return ""
	}
	if (cp.value > ap.value) == q.most {
		return string(scenario.CP)
	}
	return string(scenario.AP)
}

// questions are those of the table, what happens under faults first.
func questions() []question {
	return slices.Concat(partitionQuestions(), outageQuestions(), freshnessQuestions(), lossQuestions(), costQuestions())
}

func partitionQuestions() []question {
	isolated := with(scenario.Isolate, "follower")
	return []question{
		{text: "Writes accepted on the minority side of a partition", in: isolated, most: true, of: struckSide(writes)},
		{text: "Reads answered there", in: isolated, most: true, of: struckSide(reads)},
		{text: "Stale reads there, and the oldest", in: isolated, of: staleThere},
		{text: "Converged after a fault was healed, at the latest", in: everywhere, of: slowestHeal},
	}
}

func outageQuestions() []question {
	gap := func(v *verdict.Verdict) (float64, bool) { return v.Writes.LongestGap, v.Writes.Count > 0 }
	return []question{
		{text: "Longest time without a write when the leader (AP: the first node) is killed", in: with(scenario.Kill, "leader"), of: middle(gap)},
		{text: "… when another node is killed", in: with(scenario.Kill, "follower"), of: middle(gap)},
		{text: "… when the majority is killed", in: with(scenario.Kill, "followers"), of: middle(gap)},
	}
}

func freshnessQuestions() []question {
	return []question{
		{text: "Stale reads while nothing fails, and the oldest", in: calm, of: staleOverall},
		{text: "A registration is seen at other nodes by a read, p50 / p99", in: calm, of: visibleBy(trial.ByRead)},
		{text: "… in a list, p50 / p99", in: calm, of: visibleBy(trial.ByList)},
		{text: "A dead instance is gone from every list, p99 (stock Eureka: 180 s)", note: leases, in: died, of: removed},
	}
}

func lossQuestions() []question {
	return []question{
		{text: "Living instances evicted, in all scenarios", in: everywhere, of: total(func(v *verdict.Verdict) float64 { return float64(v.FalseEvictions) }, showCount)},
		{text: "Living instances absent from lists, in all scenarios, in instance-seconds a node", in: everywhere, of: total(func(v *verdict.Verdict) float64 { return v.Missing }, showSum)},
		{text: "Acknowledged writes lost or revived once clients have gone on and all has settled, in all scenarios", in: everywhere, of: total(func(v *verdict.Verdict) float64 {
			return float64(len(v.Lost) + len(v.Converged.Lost) + len(v.Revived))
		}, showCount)},
		{text: "Watched keys whose history a single copy explains", in: everywhere, most: true, of: explained},
	}
}

func costQuestions() []question {
	cost := func(text string, of func(verdict.Cost) float64, show func(float64) string) question {
		return question{text: text, in: everywhere, of: shown(func(v *verdict.Verdict) (float64, bool) { return of(v.Cost), of(v.Cost) > 0 }, show)}
	}
	return []question{
		{text: "Latency of a heartbeat while nothing fails, p50 / p99", in: calm, of: heartbeats},
		cost("CPU of all nodes for 1,000 renewals", func(c verdict.Cost) float64 { return c.CPUPerRenewals }, showSeconds),
		cost("Bytes between nodes for 1,000 renewals", func(c verdict.Cost) float64 { return c.BytesPerRenewals }, showBytes),
		cost("Bytes to disks for 1,000 renewals", func(c verdict.Cost) float64 { return c.DiskPerRenewals }, showBytes),
		cost("Memory of a node for 1,000 instances", func(c verdict.Cost) float64 { return c.MemoryPerInstances }, showBytes),
	}
}

// everywhere are all scenarios.
func everywhere(scenario.Scenario) bool { return true }

// calm are the scenarios of which nothing is expected but the load, reads included.
func calm(s scenario.Scenario) bool { return len(s.Faults)+len(s.Storms) == 0 && s.Load.Reads > 0 }

// with are the scenarios whose only fault is of a kind, and strikes certain nodes.
func with(kind scenario.Kind, nodes string) func(scenario.Scenario) bool {
	return func(s scenario.Scenario) bool {
		return len(s.Faults) == 1 && s.Faults[0].Kind == kind && s.Faults[0].Nodes == nodes
	}
}

// died are the scenarios in which instances die.
func died(s scenario.Scenario) bool {
	return slices.ContainsFunc(s.Faults, func(f scenario.Fault) bool { return f.Kind == scenario.Die })
}

// shown is the median of a figure over the trials that have it.
func shown(of func(*verdict.Verdict) (float64, bool), show func(float64) string) func([]run) reply {
	return func(trials []run) reply {
		var values perRound
		for _, t := range trials {
			if value, ok := of(t.verdict); ok {
				values = append(values, value)
			}
		}
		if len(values) == 0 {
			return reply{}
		}
		return reply{values.show(show), values.median()}
	}
}

func middle(of func(*verdict.Verdict) (float64, bool)) func([]run) reply {
	return shown(of, showSeconds)
}

// total is the sum of a figure over the trials.
func total(of func(*verdict.Verdict) float64, show func(float64) string) func([]run) reply {
	return func(trials []run) reply {
		var sum float64
		for _, t := range trials {
			sum += of(t.verdict)
		}
		return reply{show(sum), sum}
	}
}

// struckSide is the share of calls that were answered where the clients were cut off, while they were.
func struckSide(calls func(verdict.Side) verdict.Calls) func([]run) reply {
	return func(trials []run) reply {
		share, ok := runs{of: trials}.side(0, true).shareInTime(calls)
		if !ok {
			return reply{}
		}
		return reply{share.show(showShare), share.median()}
	}
}

func staleThere(trials []run) reply { return staleness(runs{of: trials}.side(0, true)) }

func staleOverall(trials []run) reply { return staleness(runs{of: trials}.whole()) }

// staleness is share and greatest age of stale answers; modes are compared by the share.
func staleness(seen view) reply {
	share, oldest := seen.stale()
	switch {
	case len(share) == 0:
		return reply{}
	case share.zero():
		return reply{"none", 0}
	}
	return reply{fmt.Sprintf("%s, %s", showShare(share.median()), showSeconds(slices.Max(oldest))), share.median()}
}

// slowestHeal is the longest of all faults' healings; one that did not heal is the worst.
func slowestHeal(trials []run) reply {
	slowest, never, count := 0.0, 0, 0
	for _, t := range trials {
		for _, h := range t.verdict.Healing {
			count++
			slowest = max(slowest, h.Seconds)
			if h.Seconds < 0 {
				never++
			}
		}
	}
	switch {
	case count == 0:
		return reply{}
	case never > 0:
		return reply{fmt.Sprintf("%d of %d not within the trial", never, count), math.MaxFloat64}
	}
	return reply{showSeconds(slowest), slowest}
}

// visibleBy is how long registrations took until other nodes of the datacenter showed them; modes are compared by p99.
func visibleBy(way trial.Way) func([]run) reply {
	return twoQuantiles(func(v *verdict.Verdict) verdict.Spread { return v.Visibility[way] })
}

func heartbeats(trials []run) reply {
	return twoQuantiles(func(v *verdict.Verdict) verdict.Spread { return v.Operations[trial.Heartbeat].Latency })(trials)
}

func twoQuantiles(of func(*verdict.Verdict) verdict.Spread) func([]run) reply {
	return func(trials []run) reply {
		var middle, late perRound
		for _, t := range trials {
			if s := of(t.verdict); s.Count > 0 {
				middle, late = append(middle, s.P50), append(late, s.P99)
			}
		}
		if len(middle) == 0 {
			return reply{}
		}
		return reply{showSeconds(middle.median()) + " / " + showSeconds(late.median()), late.median()}
	}
}

// removed is how long dead instances were listed, where self-preservation withheld nothing.
func removed(trials []run) reply {
	return shown(func(v *verdict.Verdict) (float64, bool) {
		return v.Removal.P99, v.Removal.Count > 0 && v.Removal.Never == 0
	}, showSeconds)(trials)
}

// explained are the keys whose history is linearizable, over all trials.
func explained(trials []run) reply {
	keys, explained := 0, 0
	for _, t := range trials {
		h := t.verdict.History
		switch h.Result {
		case verdict.Unpromised:
			return reply{text: "not promised"}
		case verdict.OK, verdict.Violated:
			keys += h.Keys
			explained += h.Keys - len(h.Violated)
		}
	}
	if keys == 0 {
		return reply{}
	}
	return reply{fmt.Sprintf("%d of %d", explained, keys), float64(explained) / float64(keys)}
}
