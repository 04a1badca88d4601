package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
)

// advice is whom a column suits, and what it costs: rows of the tables in which its range is apart from those of others.
type advice struct {
	Column  column
	Instead string   // the heading of the column of which it is a variant, and against which alone it is held; empty: it is none
	Wants   []string // wishes that it meets better than another column
	Costs   []string // figures in which another column is better
	Also    string   // the heading of another column that meets all these wishes as well; empty: there is none
	Lacks   string   // why nothing can be said of it; empty: something can

	met []string // the names of the rows of all wishes that it meets better
}

// advices are those of the columns that were compared, first of those that ran everything, then of their variants. All
// follows from the rows: with other figures a column is advised for other reasons, or for none.
func (r *Report) advices() []advice {
	var main, variants []column
	for _, c := range r.columns() {
		if c.Brief {
			variants = append(variants, c)
			continue
		}
		main = append(main, c)
	}
	var all []advice
	rows := r.only(main, everything).wishes()
	for _, c := range main {
		all = append(all, adviceOf(c, rows))
	}
	for i := range all {
		all[i].Also = also(all, i)
	}
	for _, c := range variants {
		base := slices.IndexFunc(main, func(other column) bool { return other.System == c.System && other.Mode == c.Mode })
		if base < 0 {
			continue
		}
		both := r.only([]column{c, main[base]}, func(s scenario.Scenario) bool { return r.runs(s, c).why == "" })
		a := adviceOf(c, both.wishesOf(both.groupsOf(true)))
		a.Instead = main[base].Heading()
		all = append(all, a)
	}
	return all
}

// also is the heading of the first other column that meets all wishes of one; empty: there is none.
func also(all []advice, of int) string {
	for i, other := range all {
		if i != of && len(all[of].met) > 0 && !slices.ContainsFunc(all[of].met, func(name string) bool { return !slices.Contains(other.met, name) }) {
			return other.Column.Heading()
		}
	}
	return ""
}

func everything(scenario.Scenario) bool { return true }

// only is the report as if no other columns had been compared, and in no other scenarios.
func (r *Report) only(columns []column, in func(scenario.Scenario) bool) *Report {
	c := *r.Comparison
	c.Plan.Columns = nil
	for _, column := range columns {
		c.Plan.Columns = append(c.Plan.Columns, column.Column)
	}
	c.Scenarios = slices.DeleteFunc(slices.Clone(c.Scenarios), func(s scenario.Scenario) bool { return !in(s) })
	c.Trials = nil
	part := &Report{Comparison: &c}
	for i, t := range r.Trials {
		wanted := slices.ContainsFunc(columns, func(c column) bool { return c.Name == t.Column })
		if wanted && slices.ContainsFunc(c.Scenarios, func(s scenario.Scenario) bool { return s.Name == t.Scenario }) {
			c.Trials, part.Verdicts = append(c.Trials, t), append(part.Verdicts, r.Verdicts[i])
		}
	}
	return part
}

// wishes are the rows that take part in the decision: the first of each group, then the second of each, for the first ones
// are what a reader is told.
func (r *Report) wishes() []row { return r.wishesOf(r.groups()) }

func (r *Report) wishesOf(groups []group) []row {
	var rows []row
	for i := range groups {
		groups[i].Rows = slices.DeleteFunc(groups[i].Rows, func(row row) bool { return row.wish == "" })
	}
	for place, found := 0, true; found; place++ {
		found = false
		for _, g := range groups {
			if place < len(g.Rows) {
				rows, found = append(rows, g.Rows[place]), true
			}
		}
	}
	return rows
}

// mostAdvised is how many reasons a reader is told of each kind; the tables have all of them.
const mostAdvised = 4

// adviceOf holds a column against the others of some rows.
func adviceOf(c column, rows []row) advice {
	a := advice{Column: c}
	for _, row := range rows {
		cells := row.Cells
		own := slices.IndexFunc(cells, func(of cell) bool { return of.Column.Name == c.Name })
		switch {
		case own < 0:
		case cells[own].Better && row.best(own):
			a.met = append(a.met, row.Name)
			a.Wants = append(a.Wants, row.wishOf(cells[own])+" ("+compared(cells, own)+")")
		case cells[own].behind:
			a.Costs = append(a.Costs, uncapital(row.Name)+": "+compared(cells, own))
		}
	}
	a.Wants, a.Costs = foremost(a.Wants), foremost(a.Costs)
	a.Lacks = lack(c, rows)
	return a
}

// lack says why rows tell nothing of a column; empty: they tell something.
func lack(c column, rows []row) string {
	rounds, beside := 0, false
	for _, row := range rows {
		for _, own := range row.Cells {
			if own.Column.Name != c.Name {
				continue
			}
			rounds = max(rounds, len(own.values))
			beside = beside || own.compared() && slices.ContainsFunc(row.Cells, func(other cell) bool { return other.Column.Name != c.Name && other.compared() })
		}
	}
	switch {
	case rounds == 0:
		return "was not measured"
	case rounds == 1:
		return "ran once, so that nothing can be said of it"
	case !beside:
		return "has no column beside it that ran the same twice, so that nothing can be said of it"
	}
	return ""
}

// foremost are the first of a list, and how many more there are.
func foremost(texts []string) []string {
	if len(texts) <= mostAdvised {
		return texts
	}
	return append(slices.Clone(texts[:mostAdvised]), fmt.Sprintf("%d more, in the tables", len(texts)-mostAdvised))
}

// compared is a column's figure, and those of the others.
func compared(cells []cell, own int) string {
	text := cells[own].brief()
	var others []string
	for i, c := range cells {
		if i != own && c.compared() {
			others = append(others, c.Column.Heading()+" "+c.brief())
		}
	}
	return text + "; " + strings.Join(others, ", ")
}

// brief is a cell's figure, the scenario that it is of if the row does not say, and a worse one that not all columns ran.
func (c cell) brief() string {
	text := c.Text
	if !c.values.zero() && c.values.median() == 0 { // which alone would deny what happened in some rounds
		text, _, _ = strings.Cut(c.Range, ", ")
	}
	if c.In != "" {
		text += " in " + c.In
	}
	if c.Worse != "" {
		text += " and " + c.Worse
	}
	return text
}

// undecided says why there is no advice; empty: there is some.
func (r *Report) undecided() string {
	switch {
	case len(r.ran()) == 0:
		return "Nothing ran."
	case r.counting() == 0:
		return "No trial counts, so that nothing can be said."
	case len(r.columns()) < 2:
		return "One column ran: there is nothing to compare it with."
	}
	advices := r.advices()
	for _, a := range advices {
		if len(a.Wants)+len(a.Costs) > 0 {
			return ""
		}
	}
	if r.mostRounds() < 2 {
		return "One round cannot tell a difference from chance: no figure has a range, and none is called better. Run it with more rounds."
	}
	var alike, lacking []string
	for _, a := range advices {
		if a.Lacks == "" {
			alike = append(alike, a.Column.Heading())
			continue
		}
		lacking = append(lacking, a.Column.Heading()+" "+a.Lacks+".")
	}
	switch {
	case len(lacking) == 0:
		return "In no figure are the columns' ranges apart: as far as these rounds tell, the columns are alike."
	case len(alike) == 0:
		return strings.Join(lacking, " ")
	}
	return fmt.Sprintf("In no figure are the columns' ranges apart: as far as these rounds tell, %s are alike. %s", list(alike), strings.Join(lacking, " "))
}

// mostRounds is how many rounds count of the scenario and the column that have most.
func (r *Report) mostRounds() int {
	most := 0
	for _, s := range r.ran() {
		for _, of := range r.each(s, r.columns()) {
			most = max(most, len(of.of))
		}
	}
	return most
}

// Wanted and Cost are the openings of an advice, for the page and for Markdown.
func (a advice) Wanted() string {
	switch {
	case a.Lacks != "":
		return a.Lacks
	case len(a.Wants) == 0 && a.Instead != "":
		return "is better than " + a.Instead + " in no figure whose ranges are apart"
	case len(a.Wants) == 0:
		return "is better than another column in no figure whose ranges are apart"
	case a.Instead != "":
		return "instead of " + a.Instead + ", if you want"
	}
	return "if you want"
}

// AllWants are the wishes, and who meets them, too.
func (a advice) AllWants() []string {
	if a.Also == "" {
		return a.Wants
	}
	return append(slices.Clone(a.Wants), "all of which "+a.Also+" gives, too")
}

// Price is the opening of what a column costs.
func (a advice) Price() string {
	if a.Lacks != "" {
		return "What it costs was not measured beside another column."
	}
	if len(a.Costs) == 0 && a.Column.Brief {
		return "It costs nothing more in what it ran; its processors and disks were not measured."
	}
	if len(a.Costs) == 0 {
		return "It costs nothing more, as far as these rounds tell."
	}
	return "What it costs you:"
}

// Decision is the advice in Markdown: which column suits whom, what it costs, and how far the evidence reaches.
func (r *Report) Decision() string {
	var b strings.Builder
	if r.notValid() {
		fmt.Fprintf(&b, "**Not valid:** %s\n\n", inMarkdown(r.validText()))
	}
	if why := r.undecided(); why != "" {
		fmt.Fprintf(&b, "%s\n", inMarkdown(why))
	} else {
		for _, a := range r.advices() {
			fmt.Fprintf(&b, "- **%s** %s\n", inMarkdown(a.Column.Heading()), inMarkdown(a.Wanted()))
			for _, want := range a.AllWants() {
				fmt.Fprintf(&b, "  - %s\n", inMarkdown(want))
			}
			fmt.Fprintf(&b, "\n  %s\n", inMarkdown(a.Price()))
			for _, cost := range a.Costs {
				fmt.Fprintf(&b, "  - %s\n", inMarkdown(cost))
			}
		}
	}
	fmt.Fprintf(&b, "\n%s\n", inMarkdown(r.evidence()))
	return b.String()
}

func (r *Report) notValid() bool { return len(r.Invalid()) > 0 }

// validText says whether the run is valid.
func (r *Report) validText() string {
	invalid, notCarried := 0, 0
	for i := range r.Trials {
		switch {
		case r.notCarried(i):
			notCarried++
		case len(r.Verdicts[i].Invalid) > 0:
			invalid++
		}
	}
	unmeasured := r.unmeasured()
	switch {
	case invalid == 0 && len(unmeasured) > 0:
		return "The run is not valid: " + strings.Join(unmeasured, "; ") + "."
	case invalid == 0 && notCarried == 0:
		return fmt.Sprintf("The run is valid: the machine carried all of its %s.", counted(len(r.Trials), "trial"))
	case invalid == 0:
		return fmt.Sprintf("The run is valid: the machine carried all of its %s but %d of heartbeats alone, which are in no figure.", counted(len(r.Trials), "trial"), notCarried)
	}
	text := fmt.Sprintf("%d of %s measured the machine and not the servers. They are in no figure; what is left may not be typical either.", invalid, counted(len(r.Trials), "trial"))
	for _, sentence := range unmeasured {
		text += " " + capital(sentence) + "."
	}
	return text
}

// evidence says in one line how far the figures reach: the machine, rounds, leases, what cannot be told, and whether the run
// is valid.
func (r *Report) evidence() string {
	m := r.Machine
	parts := []string{
		fmt.Sprintf("Evidence: one machine (%s, %s, %s), on which clients, nodes and disks share everything and links have no latency, so that ratios between columns tell more than figures", m.CPU, counted(m.Cores, "core"), m.Disk),
		fmt.Sprintf("%s of %s, %s of %s each", r.trialsText(), counted(len(r.ran()), "scenario"), r.roundsText(), r.lengthText()),
	}
	if text := r.leaseText(); text != "" {
		parts = append(parts, text)
	}
	if names := r.compiling(); len(names) > 0 {
		parts = append(parts, "processor times and latencies of calls of "+list(names)+" are those of the first of Java's two compilers and are compared with nothing")
	}
	if r.sealed() {
		parts = append(parts, "what is lost are instances that never send a heartbeat, of which stock clients would restore most with the next one")
	}
	if repeats := r.repeats(); repeats > 0 {
		parts = append(parts, counted(repeats, "trial")+" repeated because the machine had been too busy")
	}
	return strings.Join(parts, "; ") + ". " + r.validText() + " " + r.limitsText() + " Rollcall's docs/comparison.md says what the words mean."
}

// sealed reports whether losses were counted on sealed instances.
func (r *Report) sealed() bool {
	return slices.ContainsFunc(r.ran(), func(s scenario.Scenario) bool { return s.Load.Sealed > 0 })
}

// trialsText is how many trials count, and of how many.
func (r *Report) trialsText() string {
	if count := r.counting(); count < len(r.Trials) {
		return fmt.Sprintf("%s (%d count)", counted(len(r.Trials), "trial"), count)
	}
	return counted(len(r.Trials), "trial")
}

// roundsText is how many rounds of a scenario in a column count.
func (r *Report) roundsText() string {
	rounds := make(map[int]bool)
	for _, s := range r.ran() {
		for _, of := range r.each(s, r.columns()) {
			if n := len(of.of); n > 0 {
				rounds[n] = true
			}
		}
	}
	return spanOf(rounds, func(n int) string { return counted(n, "round") }, func(a, b int) string { return fmt.Sprintf("%d to %d rounds", a, b) })
}

// lengthText is how long a load lasts, with the scenarios that have a length of their own.
func (r *Report) lengthText() string {
	text := showSeconds(r.Plan.Length.Seconds())
	for _, s := range r.ran() {
		if own := s.Length.Duration().Seconds(); own > 0 && own != r.Plan.Length.Seconds() {
			text += fmt.Sprintf(" (%s: %s)", s.Title, showSeconds(own))
		}
	}
	return text
}

// leaseText says how long leases were where anything happens, for those of stock clients are 90 s.
func (r *Report) leaseText() string {
	leases := make(map[int]bool)
	for _, s := range r.ran() {
		if !s.HeartbeatsOnly() && s.Load.Lease > 0 {
			leases[int(s.Load.Lease.Duration().Seconds())] = true
		}
	}
	if len(leases) == 0 {
		return ""
	}
	return "leases of " + spanOf(leases, func(n int) string { return fmt.Sprintf("%d s", n) }, func(a, b int) string { return fmt.Sprintf("%d to %d s", a, b) }) + ", where stock clients ask for 90 s"
}

// spanOf shows the only number of a set, or its least and its greatest.
func spanOf(set map[int]bool, one func(int) string, several func(least, most int) string) string {
	var numbers []int
	for n := range set {
		numbers = append(numbers, n)
	}
	switch len(numbers) {
	case 0:
		return one(0)
	case 1:
		return one(numbers[0])
	}
	return several(slices.Min(numbers), slices.Max(numbers))
}

func (r *Report) repeats() int {
	count := 0
	for _, t := range r.Trials {
		count += len(t.Repeats)
	}
	return count
}

// lacking names what the columns could not run, a sentence each: it is said, not scored.
func (r *Report) lacking() []string {
	var sentences []string
	for _, c := range r.columns() {
		seen := make(map[string][]string)
		var order []string
		for _, s := range r.Scenarios {
			if why := c.Cannot(s); why != "" {
				if seen[why] == nil {
					order = append(order, why)
				}
				seen[why] = append(seen[why], s.Title)
			}
		}
		for _, why := range order {
			sentences = append(sentences, fmt.Sprintf("%s, so it did not run %s.", capital(why), list(seen[why])))
		}
	}
	return sentences
}

// title is that of all forms of the report.
func (r *Report) title() string {
	var names []string
	for _, c := range r.spoken() {
		names = append(names, c.Heading())
	}
	if len(names) == 0 {
		return "Nothing compared"
	}
	return list(names) + ": what each does with the same faults"
}

func (r *Report) machineText() string {
	return fmt.Sprintf("rollcall %s, %s. %s.", r.Version, r.Date, r.Machine)
}

// planText says how the comparison was run.
func (r *Report) planText() string {
	p := r.Plan
	kind := "full"
	if p.Quick {
		kind = "quick"
	}
	text := fmt.Sprintf("%s, %s of %s each, with the same load and faults in %s (%s, seed %d), on clusters of real processes; it took %s.",
		counted(len(r.ran()), "scenario"), counted(len(r.Trials), "trial"), r.lengthText(), counted(len(r.columns()), "column"), kind, p.Seed, p.Took.Duration().Round(1e9))
	for _, sentence := range p.LeftOut {
		text += " " + sentence
	}
	return text
}

// limitsText is the verdict over all limits.
func (r *Report) limitsText() string {
	var without []string
	for _, c := range r.columns() {
		if !c.Promises() {
			without = append(without, c.Heading())
		}
	}
	switch broken := len(r.Broken()); {
	case broken == 0 && r.counting() == 0:
		return "No limit was checked."
	case broken == 1:
		return "One limit was broken."
	case broken > 1:
		return fmt.Sprintf("%d limits were broken.", broken)
	case len(without) == 1:
		return fmt.Sprintf("All limits were kept (%s has none).", without[0])
	case len(without) > 1:
		return fmt.Sprintf("All limits were kept (%s have none).", list(without))
	}
	return "All limits were kept."
}
