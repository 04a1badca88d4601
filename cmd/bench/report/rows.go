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

// group is the rows that answer one question of a reader.
type group struct {
	Name string
	Rows []row
}

// question is a row before the trials have answered it.
type question struct {
	figure
	when  string                       // what the scenario is, for the row's name; empty: the name says it
	in    func(scenario.Scenario) bool // the scenarios that answer it: the first one, or the worst
	worst bool                         // each column answers with the scenario in which it is worst, and names that
}

// groups are the rows that help to choose. Nothing in them is summed over scenarios, which are unlike.
func (r *Report) groups() []group {
	var all []group
	for _, g := range []struct {
		name      string
		questions []question
	}{
		{"What clients get while something fails", failing()},
		{"What is lost", losing()},
		{"How fresh answers are", freshness()},
		{"What it costs", r.spending()},
	} {
		found := group{Name: g.name}
		for _, q := range g.questions {
			if answered, ok := r.ask(q); ok {
				found.Rows = append(found.Rows, answered)
			}
		}
		if len(found.Rows) > 0 {
			all = append(all, found)
		}
	}
	return all
}

func failing() []question {
	isolated := with(scenario.Isolate, "follower")
	heartbeats := worstGap(trial.Heartbeat)
	return []question{
		{figure: writeGap(), when: "the leader is killed", in: with(scenario.Kill, "leader")},
		{figure: writeGap(), when: "another node is killed", in: with(scenario.Kill, "follower")},
		{figure: writeGap(), when: "the majority is killed", in: with(scenario.Kill, "followers")},
		{figure: readGap(), when: "the majority is killed", in: with(scenario.Kill, "followers")},
		{figure: writeGap(), when: "all nodes are killed at once", in: with(scenario.Kill, "all")},
		{figure: writeGap(), when: "the leader stands still", in: with(scenario.Pause, "leader")},
		{figure: heartbeats, when: "the leader is killed", in: with(scenario.Kill, "leader")},
		{figure: worstGap(trial.Fetch), when: "the leader is killed", in: with(scenario.Kill, "leader")},
		{figure: cutOff("writes answered on the side cut off", writes), when: "a node is isolated with its clients", in: isolated},
		{figure: cutOff("fetches and deltas answered on the side cut off", reads), when: "a node is isolated with its clients", in: isolated},
		{figure: heartbeats, when: "a node is isolated with its clients", in: isolated},
		{figure: falseEvictions(), in: observed, worst: true},
		{figure: missing(), in: observed, worst: true},
		{figure: unanswered(), in: observed, worst: true},
	}
}

func losing() []question {
	var all []question
	for _, k := range lossKinds {
		all = append(all, question{figure: k.figure(), in: observed, worst: true})
	}
	proven := explained()
	proven.name += ", where many clients write each at once"
	return append(all, question{figure: explained(), in: observed, worst: true}, question{figure: proven, in: crowded})
}

func freshness() []question {
	isolated := with(scenario.Isolate, "follower")
	all := []question{
		{figure: follows(wholeStaleness), when: "nothing fails", in: calm},
		{figure: staleShare("stale answers to probes", wholeStaleness), when: "nothing fails", in: calm},
		{figure: follows(struckStaleness), when: "a node is isolated, on its side", in: isolated},
		{figure: staleShare("stale answers to probes on the side cut off", struckStaleness), when: "a node is isolated", in: isolated},
	}
	for _, way := range []trial.Way{trial.ByRead, trial.ByList, trial.ByDelta, trial.ByWatch} {
		all = append(all, question{figure: seenBy(way), when: "nothing fails", in: calm})
	}
	return append(all, question{figure: removal(), in: died}, question{figure: healed(), in: observed, worst: true})
}

// spending are the questions about costs. Those per renewal compare the load of heartbeats that is nearest to 1,000 a
// second with the idle cluster.
func (r *Report) spending() []question {
	priced := func(s scenario.Scenario) bool { return s.Name == r.priced().Name && s.Name != "" }
	latency := func(v *verdict.Verdict) verdict.Spread { return v.Operations[trial.Heartbeat].Latency }
	alone := fmt.Sprintf("latency of a heartbeat where nothing else comes, at %s a second", showCount(rateOf(r.priced())))
	return []question{
		{figure: compiled(late("latency of a heartbeat", latency)), when: "nothing fails", in: calm},
		{figure: compiled(late(alone, latency)), in: priced},
		{figure: compiled(r.perRenewals("processor time of all nodes", showSeconds, func(c verdict.Cost) float64 { return c.CPU })), in: priced},
		{figure: r.perRenewals("sent between nodes", showBytes, func(c verdict.Cost) float64 { return c.Sent }), in: priced},
		{figure: r.perRenewals("written to the disk of a node", showBytes, func(c verdict.Cost) float64 { return c.Written }), in: priced},
		{figure: collected(fromVerdict("memory of a node for 1,000 instances", showBytes, less, func(v *verdict.Verdict) (float64, bool) {
			return v.Cost.MemoryPerInstances, v.Cost.MemoryPerInstances > 0
		})), in: priced},
	}
}

// ask answers a question; not ok: no column can.
func (r *Report) ask(q question) (row, bool) {
	answer := row{Name: capital(q.name)}
	if q.when != "" {
		answer.Name += ", when " + q.when
		if q.when == "nothing fails" {
			answer.Name = capital(q.name) + ", while nothing fails"
		}
	}
	asked := slices.DeleteFunc(r.ran(), func(s scenario.Scenario) bool { return !q.in(s) })
	if len(asked) == 0 {
		return row{}, false
	}
	if q.worst {
		answer.Name += ", worst scenario"
		shared, others := r.shared(q.figure, asked)
		if len(others) > 0 {
			answer.Note = fmt.Sprintf("of the %s that all columns ran: not of %s", counted(len(shared), "scenario"), titles(others))
		}
		answer.Cells = r.worst(q.figure, shared)
		for i, c := range r.worst(q.figure, others) {
			if worse(q.figure, c, answer.Cells[i]) {
				answer.Cells[i].Notes = append(answer.Cells[i].Notes, "where not all columns ran: "+c.brief())
			}
		}
	} else {
		answer.Cells = r.cells(q.figure, asked[0])
		if q.when != "" && len(asked[0].Faults) == 1 {
			answer.Note = r.lasting(asked[0])
		}
	}
	mark(answer.Cells, q.better)
	return answer, slices.ContainsFunc(answer.Cells, func(c cell) bool { return !c.Absent })
}

// brief is a cell's figure and the scenario that it is of. A median of 0 would deny what happened in some rounds: it gives way to
// their range.
func (c cell) brief() string {
	text := c.Text
	if !c.values.zero() && c.values.median() == 0 {
		text, _, _ = strings.Cut(c.Range, ", ")
	}
	if c.In != "" {
		text += " in " + c.In
	}
	return text
}

// lasting says how long the fault of a scenario lasted, for a gap cannot be shorter where nothing but its end helps; empty: it was
// a moment.
func (r *Report) lasting(s scenario.Scenario) string {
	var lengths perRound
	for _, f := range injected(r.each(s, r.columns()), 0) {
		lengths = append(lengths, (f.To - f.From).Seconds())
	}
	if lengths.zero() {
		return ""
	}
	return "for " + showSeconds(math.Round(lengths.median()*10)/10)
}

// cells are a figure of a scenario in every column.
func (r *Report) cells(f figure, s scenario.Scenario) []cell {
	var cells []cell
	for _, of := range r.each(s, r.columns()) {
		c := cellOf(f, of)
		c.Link = anchor(s.Name)
		cells = append(cells, c)
	}
	return cells
}

// shared divides scenarios into those in which all columns have a figure, and those in which only some have. Brief columns,
// and those that have it in no scenario, do not count. Where columns share none, all are shared.
func (r *Report) shared(f figure, asked []scenario.Scenario) (shared, others []scenario.Scenario) {
	known := make(map[string][]string) // the scenarios of each column
	var of []string                    // all of them
	for _, s := range asked {
		for _, c := range r.cells(f, s) {
			if c.lacks() {
				continue
			}
			if !c.Column.Brief {
				known[c.Column.Name] = append(known[c.Column.Name], s.Name)
			}
			if !c.Absent {
				of = append(of, s.Name)
			}
		}
	}
	for _, s := range asked {
		everywhere := true
		for _, names := range known {
			everywhere = everywhere && slices.Contains(names, s.Name)
		}
		switch {
		case !slices.Contains(of, s.Name):
		case everywhere:
			shared = append(shared, s)
		default:
			others = append(others, s)
		}
	}
	if len(shared) == 0 {
		return asked, nil
	}
	return shared, others
}

// titles names scenarios, if they are few.
func titles(of []scenario.Scenario) string {
	const most = 6
	if len(of) > most {
		return counted(len(of), "other")
	}
	var all []string
	for _, s := range of {
		all = append(all, s.Title)
	}
	return list(all)
}

// worst are a figure in the scenario in which each column is worst. A column that lacks a scenario that another one ran
// may be worse than it seems.
func (r *Report) worst(f figure, asked []scenario.Scenario) []cell {
	cells := make([]cell, len(r.columns()))
	known := make([]int, len(cells))
	total := 0
	for _, s := range asked {
		row := r.cells(f, s)
		if slices.ContainsFunc(row, func(c cell) bool { return !c.Absent }) {
			total++
		}
		for i, c := range row {
			if !c.lacks() {
				known[i]++
			}
			if cells[i].Text == "" || cells[i].Absent && !c.Absent || !c.Absent && worse(f, c, cells[i]) {
				cells[i] = c
				if !c.Absent && c.values.spans() {
					cells[i].In = s.Title
				}
			}
		}
	}
	for i := range cells {
		cells[i].partial = known[i] < total
		if cells[i].partial && !cells[i].Absent {
			cells[i].Notes = append(cells[i].Notes, fmt.Sprintf("ran %d of %d scenarios", known[i], total))
		}
		if !cells[i].values.spans() {
			cells[i].Link = "matrix" // alike in all scenarios
		}
	}
	return cells
}

// spans reports whether any value is worth the name of its scenario: not 0.
func (f perRound) spans() bool { return !f.zero() }

// worse compares two cells of a column: by their medians, then by their worst rounds.
func worse(f figure, a, b cell) bool {
	if len(a.values) == 0 || len(b.values) == 0 {
		return false
	}
	worst := func(c cell) float64 { return slices.MaxFunc(c.values, f.better.compare) }
	return cmp.Or(f.better.compare(a.values.median(), b.values.median()), f.better.compare(worst(a), worst(b))) > 0
}

// figures are the rows of a scenario's table. Those that no column has anything to say to are left out.
func (r *Report) figures(s scenario.Scenario) []row {
	var rows []row
	for _, f := range figures() {
		cells := r.cells(f, s)
		if !says(f, cells) {
			continue
		}
		for i := range cells {
			cells[i].Link = ""
		}
		mark(cells, f.better)
		rows = append(rows, row{Name: f.name, Cells: cells})
	}
	return rows
}

// says reports whether the cells of a figure are worth a row.
func says(f figure, cells []cell) bool {
	for _, c := range cells {
		reason := c.Text == none || c.Column.Class != "" && c.Absent && f.absent == nil
		if !reason && !(f.rare && c.Text == f.show(0) && c.values.zero()) {
			return true
		}
	}
	return false
}

// matrixRow is a scenario in the matrix: of each column how long one client at most had no answer, the share of stale answers, what was
// lost, and how long healing took.
type matrixRow struct {
	Name, Title string
	Lines       []matrixLine
	Absent      []string // columns that have no figures here, and why, a sentence each
}

// matrixLine is a column in a scenario of the matrix.
type matrixLine struct {
	Column column
	Cells  []cell // as many as matrixHeads
}

// matrixHeads are the figures of the matrix.
var matrixHeads = []string{"gap", "stale", "lost", "healed"}

// matrix is every scenario but those of heartbeats alone, in which nothing happens.
func (r *Report) matrix() []matrixRow {
	lost := fromVerdict("lost", showCount, less, changesLost)
	shown := []figure{worstGap(trial.Heartbeat), staleShare("", wholeStaleness), lost, healed()}
	var rows []matrixRow
	for _, s := range r.ran() {
		if s.HeartbeatsOnly() {
			continue
		}
		found := matrixRow{Name: s.Name, Title: s.Title, Absent: r.absent(s)}
		for _, f := range shown {
			cells := slices.DeleteFunc(r.cells(f, s), func(c cell) bool { return r.runs(s, c.Column).why != "" })
			mark(cells, f.better)
			for i, c := range cells {
				if i == len(found.Lines) {
					found.Lines = append(found.Lines, matrixLine{Column: c.Column})
				}
				found.Lines[i].Cells = append(found.Lines[i].Cells, c)
			}
		}
		rows = append(rows, found)
	}
	return rows
}

// absent says which columns have no figures of a scenario, and why.
func (r *Report) absent(s scenario.Scenario) []string {
	var reasons []string
	names := make(map[string][]string)
	for _, of := range r.each(s, r.columns()) {
		if of.why == "" {
			continue
		}
		if names[of.why] == nil {
			reasons = append(reasons, of.why)
		}
		names[of.why] = append(names[of.why], of.Heading())
	}
	var sentences []string
	for _, why := range reasons {
		if !strings.HasPrefix(why, names[why][0]) {
			why = capital(why) + ": " + strings.Join(names[why], "; ")
		}
		sentences = append(sentences, why)
	}
	return sentences
}

// operationRow sums up one operation of one column.
type operationRow struct {
	Operation trial.Operation
	Column    column
	Cells     []cell // as many as operationFigures
}

// operationFigures are those of an operation: of all its calls, of the client that was worst off, and of the latencies.
func operationFigures(o trial.Operation) []figure {
	calls := func(name string, show func(float64) string, get func(verdict.Calls) float64) figure {
		return fromVerdict(name, show, neither, func(v *verdict.Verdict) (float64, bool) { return get(v.Operations[o]), v.Operations[o].Count > 0 })
	}
	worst := func(name string, show func(float64) string, get func(verdict.Worst) float64) figure {
		return fromVerdict(name, show, neither, func(v *verdict.Verdict) (float64, bool) { return get(v.Worst[o]), v.Worst[o].Clients > 0 })
	}
	return []figure{
		calls("calls", showCount, func(c verdict.Calls) float64 { return float64(c.Count) }),
		calls("answered", showShare, func(c verdict.Calls) float64 { return c.Success }),
		calls("longest gap", showSeconds, func(c verdict.Calls) float64 { return c.LongestGap }),
		worst("worst client: answered", showShare, func(w verdict.Worst) float64 { return w.Success }),
		worst("its gap", showSeconds, func(w verdict.Worst) float64 { return w.Gap }),
		calls("p50", showSeconds, func(c verdict.Calls) float64 { return c.Latency.P50 }),
		calls("p90", showSeconds, func(c verdict.Calls) float64 { return c.Latency.P90 }),
		calls("p99", showSeconds, func(c verdict.Calls) float64 { return c.Latency.P99 }),
		calls("p99.9", showSeconds, func(c verdict.Calls) float64 { return c.Latency.P999 }),
		calls("longest", showSeconds, func(c verdict.Calls) float64 { return c.Latency.Max }),
	}
}

// operations are the rows of a scenario's table of calls, the columns of each operation below each other.
func (r *Report) operations(s scenario.Scenario) []operationRow {
	var rows []operationRow
	for _, operation := range trial.Operations {
		for _, of := range r.each(s, r.columns()) {
			row := operationRow{Operation: operation, Column: of.column}
			for _, f := range operationFigures(operation) {
				row.Cells = append(row.Cells, cellOf(f, of))
			}
			if !row.Cells[0].Absent {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// operationHeads name the columns of the table of calls.
func operationHeads() []string {
	var heads []string
	for _, f := range operationFigures("") {
		heads = append(heads, f.name)
	}
	return heads
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
