package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// figureRow is one figure of a scenario, as text. Of several rounds it is the median, and in brackets the range. "–":
// the mode has none.
type figureRow struct {
	Name   string
	CP, AP string
}

// none stands for a figure that there is not.
const none = "–"

// measure is how a row is made from the verdicts of a mode's rounds.
type measure struct {
	name    string
	text    func(runs) string
	nothing string // a text that alone is not worth a row; empty: none
}

// figures are the rows of a scenario's table. Those that no mode has anything to say to are left out.
func (r *Report) figures(name string) []figureRow {
	cp, ap := r.runs(name, scenario.CP), r.runs(name, scenario.AP)
	var rows []figureRow
	for _, f := range measures {
		row := figureRow{Name: f.name, CP: none, AP: none}
		if len(cp.of) > 0 {
			row.CP = f.text(cp)
		}
		if len(ap.of) > 0 {
			row.AP = f.text(ap)
		}
		if f.says(row.CP) || f.says(row.AP) {
			rows = append(rows, row)
		}
	}
	return rows
}

// says reports whether a text is worth a row.
func (m measure) says(text string) bool { return text != none && text != m.nothing }

// measures are all rows, in their order.
var measures = slices.Concat([]measure{
	measured("writes answered", showShare, func(v *verdict.Verdict) (float64, bool) { return v.Writes.Success, v.Writes.Count > 0 }),
	measured("reads answered", showShare, func(v *verdict.Verdict) (float64, bool) { return v.Reads.Success, v.Reads.Count > 0 }),
	measured("longest gap without an answered write", showSeconds, writeGap),
	measured("longest gap without an answered read", showSeconds, func(v *verdict.Verdict) (float64, bool) {
		return v.Reads.LongestGap, v.Reads.Count > 0
	}),
	measured("write latency, p50", showSeconds, func(v *verdict.Verdict) (float64, bool) { return v.Writes.Latency.P50, v.Writes.Latency.Count > 0 }),
	measured("write latency, p99", showSeconds, func(v *verdict.Verdict) (float64, bool) { return v.Writes.Latency.P99, v.Writes.Latency.Count > 0 }),
	measured("read latency, p50", showSeconds, func(v *verdict.Verdict) (float64, bool) { return v.Reads.Latency.P50, v.Reads.Latency.Count > 0 }),
	measured("read latency, p99", showSeconds, func(v *verdict.Verdict) (float64, bool) { return v.Reads.Latency.P99, v.Reads.Latency.Count > 0 }),
	measured("stale answers", showShare, func(v *verdict.Verdict) (float64, bool) { return v.Staleness.Share, v.Staleness.Reads > 0 }),
	measured("oldest stale answer", showSeconds, func(v *verdict.Verdict) (float64, bool) { return v.Staleness.Age.Max, v.Staleness.Stale > 0 }),
	measured("most versions behind", showCount, func(v *verdict.Verdict) (float64, bool) { return float64(v.Staleness.Behind), v.Staleness.Stale > 0 }),
}, visibilityMeasures(), []measure{
	spreadOf("removal of a dead instance", func(v *verdict.Verdict) verdict.Spread { return v.Removal }),
	always("ghosts (dead but listed), instance-seconds", showSum, func(v *verdict.Verdict) float64 { return v.Ghosts }),
	always("missing (alive but not listed), instance-seconds", showSum, func(v *verdict.Verdict) float64 { return v.Missing }),
	measured("healed after the fault's end", showSeconds, slowestHealing),
	always("instances lost", showCount, func(v *verdict.Verdict) float64 { return float64(len(v.Lost)) }),
	always("instances revived after their cancel", showCount, func(v *verdict.Verdict) float64 { return float64(len(v.Revived)) }),
	always("dead instances listed at the end", showCount, func(v *verdict.Verdict) float64 { return float64(len(v.Dead)) }),
	always("false evictions", showCount, func(v *verdict.Verdict) float64 { return float64(v.FalseEvictions) }),
	absentAtZero("elections", showCount, func(v *verdict.Verdict) float64 { return float64(v.Elections) }),
	absentAtZero("time without a leader", showSeconds, func(v *verdict.Verdict) float64 { return v.Leaderless }),
	absentAtZero("replicator: tasks", showCount, func(v *verdict.Verdict) float64 { return v.Replicator.Tasks }),
	absentAtZero("replicator: merged", showCount, func(v *verdict.Verdict) float64 { return v.Replicator.Merged }),
	absentAtZero("replicator: dropped", showCount, func(v *verdict.Verdict) float64 { return v.Replicator.Dropped }),
	absentAtZero("replicator: failed and repeated", showCount, func(v *verdict.Verdict) float64 { return v.Replicator.Errors }),
	absentAtZero("replicator: largest batch", showCount, func(v *verdict.Verdict) float64 { return v.Replicator.Batch }),
	absentAtZero("replicator: largest lag", showSeconds, func(v *verdict.Verdict) float64 { return v.Replicator.LagSeconds }),
	absentAtZero("processor time of all nodes per second", showSeconds, func(v *verdict.Verdict) float64 { return v.Cost.CPU }),
	absentAtZero("memory of a node at the end", showBytes, func(v *verdict.Verdict) float64 { return v.Cost.Memory }),
	absentAtZero("sent between nodes", showBytesPerSecond, func(v *verdict.Verdict) float64 { return v.Cost.Sent }),
	absentAtZero("written to disks", showBytesPerSecond, func(v *verdict.Verdict) float64 { return v.Cost.Written }),
	{name: "linearizable", text: func(of runs) string {
		return results(of, func(v *verdict.Verdict) verdict.Result { return v.History.Result })
	}},
	{name: "converged, no update lost against the rule", text: func(of runs) string {
		return results(of, func(v *verdict.Verdict) verdict.Result { return v.Converged.Result })
	}},
})

func visibilityMeasures() []measure {
	var all []measure
	for _, way := range trial.Ways {
		all = append(all,
			spreadOf(fmt.Sprintf("visible at another node, by %s", way), func(v *verdict.Verdict) verdict.Spread { return v.Visibility[way] }),
			spreadOf(fmt.Sprintf("visible in the other datacenter, by %s", way), func(v *verdict.Verdict) verdict.Spread { return v.Abroad[way] }))
	}
	return all
}

// measured is a figure that get tells of a verdict, if there is one.
func measured(name string, show func(float64) string, get func(*verdict.Verdict) (float64, bool)) measure {
	return measure{name: name, text: func(of runs) string { return of.known(get).show(show) }}
}

// spreadOf shows p50 and p99 of a spread.
func spreadOf(name string, get func(*verdict.Verdict) verdict.Spread) measure {
	return measure{name: name + ", p50 / p99", text: func(of runs) string {
		var p50, p99 []float64
		never := 0
		for _, o := range of.of {
			spread := get(o.verdict)
			never += spread.Never
			if spread.Count > 0 {
				p50, p99 = append(p50, spread.P50), append(p99, spread.P99)
			}
		}
		var parts []string
		if len(p50) > 0 {
			parts = append(parts, showSeconds(median(p50))+" / "+showSeconds(median(p99)))
		}
		if never > 0 {
			parts = append(parts, showCount(float64(never))+" never")
		}
		if len(parts) == 0 {
			return none
		}
		return strings.Join(parts, ", ")
	}}
}

// always is a figure that every verdict has. Where it is 0 in both modes there is no row.
func always(name string, show func(float64) string, get func(*verdict.Verdict) float64) measure {
	m := measured(name, show, func(v *verdict.Verdict) (float64, bool) { return get(v), true })
	m.nothing = show(0)
	return m
}

// absentAtZero is a figure that is always 0 in a mode that has no such thing.
func absentAtZero(name string, show func(float64) string, get func(*verdict.Verdict) float64) measure {
	m := always(name, show, get)
	return measure{name: name, text: func(of runs) string {
		if text := m.text(of); text != m.nothing {
			return text
		}
		return none
	}}
}

// slowestHealing is that of the faults; one that never healed is the slowest.
func slowestHealing(v *verdict.Verdict) (float64, bool) {
	slowest := 0.0
	for _, h := range v.Healing {
		if h.Seconds < 0 {
			return -1, true
		}
		slowest = max(slowest, h.Seconds)
	}
	return slowest, len(v.Healing) > 0
}

// results names each result of the rounds once.
func results(of runs, get func(*verdict.Verdict) verdict.Result) string {
	var names []string
	for _, o := range of.of {
		if name := string(get(o.verdict)); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}

// operationRow sums up one operation of one mode, as text; medians of the rounds.
type operationRow struct {
	Operation                trial.Operation
	Mode                     scenario.Mode
	Calls, Success, Gap      string
	P50, P90, P99, P999, Max string
}

// operations are the rows of a scenario's table of calls, the modes of each operation below each other.
func (r *Report) operations(name string) []operationRow {
	var rows []operationRow
	for _, operation := range trial.Operations {
		for _, mode := range r.modes() {
			if of := r.runs(name, mode); !of.each(func(o run) float64 { return float64(o.verdict.Operations[operation].Count) }).zero() {
				rows = append(rows, operationRowOf(operation, of))
			}
		}
	}
	return rows
}

func operationRowOf(operation trial.Operation, of runs) operationRow {
	text := func(show func(float64) string, get func(verdict.Calls) float64) string {
		return show(of.known(func(v *verdict.Verdict) (float64, bool) {
			calls := v.Operations[operation]
			return get(calls), calls.Count > 0
		}).median())
	}
	latency := func(get func(verdict.Spread) float64) string {
		return text(showSeconds, func(c verdict.Calls) float64 { return get(c.Latency) })
	}
	return operationRow{
		Operation: operation, Mode: of.mode,
		Calls:   text(showCount, func(c verdict.Calls) float64 { return float64(c.Count) }),
		Success: text(showShare, func(c verdict.Calls) float64 { return c.Success }),
		Gap:     text(showSeconds, func(c verdict.Calls) float64 { return c.LongestGap }),
		P50:     latency(func(s verdict.Spread) float64 { return s.P50 }),
		P90:     latency(func(s verdict.Spread) float64 { return s.P90 }),
		P99:     latency(func(s verdict.Spread) float64 { return s.P99 }),
		P999:    latency(func(s verdict.Spread) float64 { return s.P999 }),
		Max:     latency(func(s verdict.Spread) float64 { return s.Max }),
	}
}

// tradeOff is one line of the table that helps to choose.
type tradeOff struct {
	Question string // as in "Writes accepted by a minority"
	CP, AP   string // what was measured, with units
	Better   string // "cp", "ap", or empty where neither is
}

// tradeOffs are the table, over all scenarios. Lines for which neither mode has data are left out.
func (r *Report) tradeOffs() []tradeOff {
	var table []tradeOff
	for _, q := range questions {
		cp, ap := q.ask(r, scenario.CP), q.ask(r, scenario.AP)
		if cp.text == "" && ap.text == "" {
			continue
		}
		table = append(table, tradeOff{Question: q.asked(r), CP: cmp.Or(cp.text, none), AP: cmp.Or(ap.text, none), Better: q.better(cp, ap)})
	}
	return table
}

// question is a line of the table before it is answered.
type question struct {
	text string
	note func([]scenario.Scenario) string // what is to be known of the scenarios; nil: nothing
	in   func(scenario.Scenario) bool     // the scenarios whose trials answer it
	most bool                             // more is better; otherwise less
	of   func(runs) reply
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
	trials := runs{mode: mode}
	for _, s := range r.Scenarios {
		if q.in(s) {
			trials.of = append(trials.of, r.runs(s.Name, mode).of...)
		}
	}
	if len(trials.of) == 0 {
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
var questions = []question{
	{text: "Writes accepted on the minority side of a partition", in: with(scenario.Isolate, "follower"), most: true, of: struckSide(writes)},
	{text: "Reads answered there", in: with(scenario.Isolate, "follower"), most: true, of: struckSide(reads)},
	{text: "Stale reads there, and the oldest", in: with(scenario.Isolate, "follower"), of: staleThere},
	{text: "Converged after a fault was healed, at the latest", in: everywhere, of: slowestHeal},
	{text: "Longest time without a write when the leader (AP: the first node) is killed", in: with(scenario.Kill, "leader"), of: shown(writeGap, showSeconds)},
	{text: "… when another node is killed", in: with(scenario.Kill, "follower"), of: shown(writeGap, showSeconds)},
	{text: "… when the majority is killed", in: with(scenario.Kill, "followers"), of: shown(writeGap, showSeconds)},
	{text: "Stale reads while nothing fails, and the oldest", in: calm, of: staleOverall},
	{text: "A registration is seen at other nodes by a read, p50 / p99", in: calm, of: visibleBy(trial.ByRead)},
	{text: "… in a list, p50 / p99", in: calm, of: visibleBy(trial.ByList)},
	{text: "A dead instance is gone from every list, p99 (stock Eureka: 180 s)", note: leases, in: died, of: removed},
	{text: "Living instances evicted, in all scenarios", in: everywhere, of: total(func(v *verdict.Verdict) float64 { return float64(v.FalseEvictions) }, showCount)},
	{text: "Living instances absent from lists, in all scenarios, in instance-seconds a node", in: everywhere, of: total(func(v *verdict.Verdict) float64 { return v.Missing }, showSum)},
	{text: "Acknowledged writes lost or revived once clients have gone on and all has settled, in all scenarios", in: everywhere, of: total(func(v *verdict.Verdict) float64 {
		return float64(len(v.Lost) + len(v.Converged.Lost) + len(v.Revived))
	}, showCount)},
	{text: "Watched keys whose history a single copy explains", in: everywhere, most: true, of: explained},
	{text: "Latency of a heartbeat while nothing fails, p50 / p99", in: calm, of: heartbeats},
	costQuestion("CPU of all nodes for 1,000 renewals", func(c verdict.Cost) float64 { return c.CPUPerRenewals }, showSeconds),
	costQuestion("Bytes between nodes for 1,000 renewals", func(c verdict.Cost) float64 { return c.BytesPerRenewals }, showBytes),
	costQuestion("Bytes to disks for 1,000 renewals", func(c verdict.Cost) float64 { return c.DiskPerRenewals }, showBytes),
	costQuestion("Memory of a node for 1,000 instances", func(c verdict.Cost) float64 { return c.MemoryPerInstances }, showBytes),
}

func writeGap(v *verdict.Verdict) (float64, bool) { return v.Writes.LongestGap, v.Writes.Count > 0 }

func costQuestion(text string, of func(verdict.Cost) float64, show func(float64) string) question {
	return question{text: text, in: everywhere, of: shown(func(v *verdict.Verdict) (float64, bool) { return of(v.Cost), of(v.Cost) > 0 }, show)}
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
func shown(of func(*verdict.Verdict) (float64, bool), show func(float64) string) func(runs) reply {
	return func(trials runs) reply {
		values := trials.known(of)
		if len(values) == 0 {
			return reply{}
		}
		return reply{values.show(show), values.median()}
	}
}

// total is the sum of a figure over the trials.
func total(of func(*verdict.Verdict) float64, show func(float64) string) func(runs) reply {
	return func(trials runs) reply {
		var sum float64
		for _, t := range trials.of {
			sum += of(t.verdict)
		}
		return reply{show(sum), sum}
	}
}

// struckSide is the share of calls that were answered where the clients were cut off, while they were.
func struckSide(calls func(verdict.Side) verdict.Calls) func(runs) reply {
	return func(trials runs) reply {
		share, ok := trials.side(0, true).shareInTime(calls)
		if !ok {
			return reply{}
		}
		return reply{share.show(showShare), share.median()}
	}
}

func staleThere(trials runs) reply { return staleness(trials.side(0, true)) }

func staleOverall(trials runs) reply { return staleness(trials.whole()) }

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
func slowestHeal(trials runs) reply {
	slowest, never, count := 0.0, 0, 0
	for _, t := range trials.of {
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
func visibleBy(way trial.Way) func(runs) reply {
	return twoQuantiles(func(v *verdict.Verdict) verdict.Spread { return v.Visibility[way] })
}

func heartbeats(trials runs) reply {
	return twoQuantiles(func(v *verdict.Verdict) verdict.Spread { return v.Operations[trial.Heartbeat].Latency })(trials)
}

func twoQuantiles(of func(*verdict.Verdict) verdict.Spread) func(runs) reply {
	return func(trials runs) reply {
		var middle, late perRound
		for _, t := range trials.of {
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
func removed(trials runs) reply {
	return shown(func(v *verdict.Verdict) (float64, bool) {
		return v.Removal.P99, v.Removal.Count > 0 && v.Removal.Never == 0
	}, showSeconds)(trials)
}

// explained are the keys whose history is linearizable, over all trials.
func explained(trials runs) reply {
	keys, explained := 0, 0
	for _, t := range trials.of {
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

// costBar compares what the modes spend: the median of all trials that can tell.
type costBar struct {
	Name string
	From string // the scenarios' titles that it comes from
	Bars []costMode
}

// costMode is one bar.
type costMode struct {
	Mode  scenario.Mode
	Text  string
	Share float64 // of the longest bar, in percent
}

// costs are the bars that any trial can fill. What depends on the load comes from the calmest scenario only.
func (r *Report) costs() []costBar {
	calm := r.calm()
	inCalm := func(s scenario.Scenario) bool { return s.Name == calm.Name }
	candidates := []struct {
		name string
		in   func(scenario.Scenario) bool
		show func(float64) string
		get  func(verdict.Cost) float64
	}{
		{"Processor time of all nodes, per 1,000 renewals", everywhere, showSeconds, func(c verdict.Cost) float64 { return c.CPUPerRenewals }},
		{"Sent between nodes, per 1,000 renewals", everywhere, showBytes, func(c verdict.Cost) float64 { return c.BytesPerRenewals }},
		{"Written to disks, per 1,000 renewals", everywhere, showBytes, func(c verdict.Cost) float64 { return c.DiskPerRenewals }},
		{"Memory of one node, per 1,000 instances", everywhere, showBytes, func(c verdict.Cost) float64 { return c.MemoryPerInstances }},
		{"Processor time of all nodes, per second", inCalm, showSeconds, func(c verdict.Cost) float64 { return c.CPU }},
		{"Sent between nodes", inCalm, showBytesPerSecond, func(c verdict.Cost) float64 { return c.Sent }},
		{"Written to disks", inCalm, showBytesPerSecond, func(c verdict.Cost) float64 { return c.Written }},
		{"Data directories of all nodes at the end", inCalm, showBytes, func(c verdict.Cost) float64 { return c.Disk }},
	}
	var bars []costBar
	for _, c := range candidates {
		if bar := r.costBar(c.name, c.in, c.show, c.get); len(bar.Bars) > 0 {
			bars = append(bars, bar)
		}
	}
	return bars
}

func (r *Report) costBar(name string, in func(scenario.Scenario) bool, show func(float64) string, get func(verdict.Cost) float64) costBar {
	bar := costBar{Name: name}
	longest := 0.0
	medians := map[scenario.Mode]float64{}
	for _, mode := range r.modes() {
		values, from := r.costValues(mode, in, get)
		if len(values) == 0 {
			continue
		}
		medians[mode] = median(values)
		longest = max(longest, medians[mode])
		bar.Bars = append(bar.Bars, costMode{Mode: mode, Text: perRound(values).show(show)})
		bar.From = from
	}
	for i, b := range bar.Bars {
		bar.Bars[i].Share = significant(100 * medians[b.Mode] / longest)
	}
	return bar
}

// costValues are the figures that are known in trials of a mode, and whose they are.
func (r *Report) costValues(mode scenario.Mode, in func(scenario.Scenario) bool, get func(verdict.Cost) float64) (values []float64, from string) {
	scenarios := 0
	for _, s := range r.ran() {
		if !in(s) {
			continue
		}
		known := len(values)
		values = append(values, r.runs(s.Name, mode).known(func(v *verdict.Verdict) (float64, bool) { return get(v.Cost), get(v.Cost) > 0 })...)
		if len(values) > known {
			scenarios++
			from = s.Title
		}
	}
	if scenarios > 1 {
		from = "all scenarios"
	}
	return values, from
}

// calm is the scenario that other ones are compared with: the first one in which nothing happens.
func (r *Report) calm() scenario.Scenario {
	ran := r.ran()
	if i := slices.IndexFunc(ran, calm); i >= 0 {
		return ran[i]
	}
	return scenario.Scenario{}
}

// telling is the scenario whose plot tells most: a partition, or else the first with any fault, or else the first.
func (r *Report) telling() scenario.Scenario {
	ran := r.ran()
	for _, has := range []func(scenario.Fault) bool{
		func(f scenario.Fault) bool { return f.Kind == scenario.Isolate },
		func(f scenario.Fault) bool { return true },
	} {
		if i := slices.IndexFunc(ran, func(s scenario.Scenario) bool { return slices.ContainsFunc(s.Faults, has) }); i >= 0 {
			return ran[i]
		}
	}
	if len(ran) == 0 {
		return scenario.Scenario{}
	}
	return ran[0]
}
