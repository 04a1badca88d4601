package report

import (
	"fmt"
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

const none = "–"

// measure is how a row is made from the verdicts of a mode's rounds.
type measure struct {
	name    string
	text    func([]*verdict.Verdict) string
	nothing string // a text that alone is not worth a row; empty: none
}

// figures are the rows of a scenario's table. Those that no mode has anything to say to are left out.
func (r *Report) figures(name string) []figureRow {
	_, cp := r.of(name, scenario.CP)
	_, ap := r.of(name, scenario.AP)
	var rows []figureRow
	for _, f := range allMeasures() {
		row := figureRow{Name: f.name, CP: none, AP: none}
		if len(cp) > 0 {
			row.CP = f.text(cp)
		}
		if len(ap) > 0 {
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

func allMeasures() []measure {
	return slices.Concat(callMeasures(), staleMeasures(), visibilityMeasures(), listMeasures(), serverMeasures(), checkMeasures())
}

func callMeasures() []measure {
	return []measure{
		measured("writes answered", showShare, func(v *verdict.Verdict) (float64, bool) { return v.Writes.Success, v.Writes.Count > 0 }),
		measured("reads answered", showShare, func(v *verdict.Verdict) (float64, bool) { return v.Reads.Success, v.Reads.Count > 0 }),
		measured("longest gap without an answered write", showSeconds, func(v *verdict.Verdict) (float64, bool) {
			return v.Writes.LongestGap, v.Writes.Count > 0
		}),
		measured("longest gap without an answered read", showSeconds, func(v *verdict.Verdict) (float64, bool) {
			return v.Reads.LongestGap, v.Reads.Count > 0
		}),
		measured("write latency, p50", showSeconds, func(v *verdict.Verdict) (float64, bool) { return v.Writes.Latency.P50, v.Writes.Latency.Count > 0 }),
		measured("write latency, p99", showSeconds, func(v *verdict.Verdict) (float64, bool) { return v.Writes.Latency.P99, v.Writes.Latency.Count > 0 }),
		measured("read latency, p50", showSeconds, func(v *verdict.Verdict) (float64, bool) { return v.Reads.Latency.P50, v.Reads.Latency.Count > 0 }),
		measured("read latency, p99", showSeconds, func(v *verdict.Verdict) (float64, bool) { return v.Reads.Latency.P99, v.Reads.Latency.Count > 0 }),
	}
}

func staleMeasures() []measure {
	return []measure{
		measured("stale answers", showShare, func(v *verdict.Verdict) (float64, bool) { return v.Staleness.Share, v.Staleness.Reads > 0 }),
		measured("oldest stale answer", showSeconds, func(v *verdict.Verdict) (float64, bool) { return v.Staleness.Age.Max, v.Staleness.Stale > 0 }),
		measured("most versions behind", showCount, func(v *verdict.Verdict) (float64, bool) { return float64(v.Staleness.Behind), v.Staleness.Stale > 0 }),
	}
}

func visibilityMeasures() []measure {
	var all []measure
	for _, way := range trial.Ways {
		all = append(all,
			spreadOf(fmt.Sprintf("visible at another node, by %s", way), func(v *verdict.Verdict) verdict.Spread { return v.Visibility[way] }),
			spreadOf(fmt.Sprintf("visible in the other datacenter, by %s", way), func(v *verdict.Verdict) verdict.Spread { return v.Abroad[way] }))
	}
	return all
}

func listMeasures() []measure {
	return []measure{
		spreadOf("removal of a dead instance", func(v *verdict.Verdict) verdict.Spread { return v.Removal }),
		always("ghosts (dead but listed), instance-seconds", showSum, func(v *verdict.Verdict) float64 { return v.Ghosts }),
		always("missing (alive but not listed), instance-seconds", showSum, func(v *verdict.Verdict) float64 { return v.Missing }),
		measured("healed after the fault's end", showSeconds, slowestHealing),
		always("instances lost", showCount, func(v *verdict.Verdict) float64 { return float64(len(v.Lost)) }),
		always("instances revived after their cancel", showCount, func(v *verdict.Verdict) float64 { return float64(len(v.Revived)) }),
		always("dead instances listed at the end", showCount, func(v *verdict.Verdict) float64 { return float64(len(v.Dead)) }),
		always("false evictions", showCount, func(v *verdict.Verdict) float64 { return float64(v.FalseEvictions) }),
	}
}

func serverMeasures() []measure {
	return []measure{
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
	}
}

func checkMeasures() []measure {
	return []measure{
		{name: "linearizable", text: func(of []*verdict.Verdict) string {
			return results(of, func(v *verdict.Verdict) verdict.Result { return v.History.Result })
		}},
		{name: "converged, no update lost against the rule", text: func(of []*verdict.Verdict) string {
			return results(of, func(v *verdict.Verdict) verdict.Result { return v.Converged.Result })
		}},
	}
}

// measured is a figure that get tells of a verdict, if there is one.
func measured(name string, show func(float64) string, get func(*verdict.Verdict) (float64, bool)) measure {
	return measure{name: name, text: func(of []*verdict.Verdict) string {
		var values perRound
		for _, v := range of {
			if value, ok := get(v); ok {
				values = append(values, value)
			}
		}
		return values.show(show)
	}}
}

// spreadOf shows p50 and p99 of a spread.
func spreadOf(name string, get func(*verdict.Verdict) verdict.Spread) measure {
	return measure{name: name + ", p50 / p99", text: func(of []*verdict.Verdict) string {
		var p50, p99 []float64
		never := 0
		for _, v := range of {
			spread := get(v)
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
	return measure{name: name, text: func(of []*verdict.Verdict) string {
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
func results(of []*verdict.Verdict, get func(*verdict.Verdict) verdict.Result) string {
	var names []string
	for _, v := range of {
		if name := string(get(v)); name != "" && !slices.Contains(names, name) {
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
			if _, verdicts := r.of(name, mode); called(verdicts, operation) {
				rows = append(rows, operationRowOf(operation, mode, verdicts))
			}
		}
	}
	return rows
}

func called(of []*verdict.Verdict, operation trial.Operation) bool {
	return slices.ContainsFunc(of, func(v *verdict.Verdict) bool { return v.Operations[operation].Count > 0 })
}

func operationRowOf(operation trial.Operation, mode scenario.Mode, of []*verdict.Verdict) operationRow {
	text := func(show func(float64) string, get func(verdict.Calls) float64) string {
		var values []float64
		for _, v := range of {
			if calls := v.Operations[operation]; calls.Count > 0 {
				values = append(values, get(calls))
			}
		}
		return show(median(values))
	}
	latency := func(get func(verdict.Spread) float64) string {
		return text(showSeconds, func(c verdict.Calls) float64 { return get(c.Latency) })
	}
	return operationRow{
		Operation: operation, Mode: mode,
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
