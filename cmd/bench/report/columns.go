package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// column is one of the comparison's, as pages show it.
type column struct {
	scenario.Column
	Class string // of style sheets: one of a few words, whatever the column is called
}

// ownHues are the columns that keep their colours in every report; moreHues is how many colours the others share.
var ownHues = []string{"cp", "ap", "eureka"}

const moreHues = 4

// columns are those that were compared, in the plan's order.
func (r *Report) columns() []column {
	all := slices.Clone(r.Plan.Columns)
	for _, t := range r.Trials {
		if !slices.ContainsFunc(all, func(c scenario.Column) bool { return c.Name == t.Column }) {
			all = append(all, r.Column(t.Column))
		}
	}
	var found []column
	others := 0
	for _, c := range all {
		class := c.Name
		if !slices.Contains(ownHues, c.Name) {
			class = fmt.Sprintf("more-%d", others%moreHues)
			others++
		}
		found = append(found, column{c, class})
	}
	return found
}

// spoken are the columns of which sentences tell: with more of them a sentence cannot be read.
func (r *Report) spoken() []column {
	const most = 3
	all := r.columns()
	return all[:min(most, len(all))]
}

// Short is the heading, or the name where that is short enough for a narrow cell and the heading is not.
func (c column) Short() string {
	const narrow = 10
	if len(c.Heading()) <= narrow {
		return c.Heading()
	}
	return c.Name
}

// About says what a column is.
func (c column) About() string {
	if c.System != scenario.Rollcall {
		return fmt.Sprintf("%s as it is published, with its defaults", c.Heading())
	}
	about := fmt.Sprintf("Rollcall in mode %s", c.Mode)
	if len(c.Settings) == 0 {
		return about + ", with its defaults"
	}
	var settings []string
	for _, key := range slices.Sorted(maps.Keys(c.Settings)) {
		settings = append(settings, key+": "+c.Settings[key])
	}
	return about + ", with " + list(settings)
}

// run is a completed, valid trial and its verdict.
type run struct {
	*trial.Trial
	verdict *verdict.Verdict
}

// runs are the rounds of a scenario in one column that count: those that were completed and are valid.
type runs struct {
	column
	scenario scenario.Scenario
	of       []run
	failed   int    // rounds that were not completed
	invalid  int    // rounds that were left out because they are not valid
	why      string // there is no round that counts; empty if there is
}

func (r *Report) runs(s scenario.Scenario, c column) runs {
	found := runs{column: c, scenario: s, why: "not run"}
	if why := c.Cannot(s); why != "" {
		found.why = why
	}
	for i := range r.Trials {
		t := &r.Trials[i]
		if t.Scenario != s.Name || t.Column != c.Name {
			continue
		}
		switch {
		case t.Failed != "":
			found.failed++
			found.why = "not completed"
		case r.notCarried(i):
			found.invalid++
			found.why = "not carried by this machine"
		case len(r.Verdicts[i].Invalid) > 0:
			found.invalid++
			found.why = "not valid"
		default:
			found.of = append(found.of, run{t, &r.Verdicts[i]})
		}
	}
	if len(found.of) > 0 {
		found.why = ""
	}
	return found
}

// each are the runs of a scenario in several columns.
func (r *Report) each(s scenario.Scenario, columns []column) []runs {
	var all []runs
	for _, c := range columns {
		all = append(all, r.runs(s, c))
	}
	return all
}

// cell is what one column shows in a row.
type cell struct {
	Column column
	Text   string // the median of the rounds, or why there is none
	Range  string // from the least to the most of the rounds, and how many there are
	Notes  []string
	In     string // the title of the scenario that it is of; empty: it is that of the row
	Link   string // the id of the page's part that it is of; empty: it is that of all of the part
	Better bool   // its range touches that of no compared cell that is not marked
	Absent bool   // there is no figure: Text says why

	values  perRound // that are compared; empty: they are not
	partial bool     // other columns ran scenarios that this one did not: it may be worse than it seems
}

// lacks reports whether the column did not run what the figure is of, or has no such figure. Where it ran and there was nothing to
// count, it lacks nothing.
func (c cell) lacks() bool { return c.Absent && c.Text != none }

// compared reports whether a cell takes part in the comparison of ranges: of one round no range is known.
func (c cell) compared() bool { return len(c.values) > 1 && !c.partial }

// row is a figure in every column.
type row struct {
	Name  string
	Note  string // of what the row is, where the name does not say; empty: it does
	Cells []cell
}

// label is the row's name on one line, with its note.
func (r row) label() string {
	if r.Note == "" {
		return r.Name
	}
	return r.Name + " (" + r.Note + ")"
}

// Words are the cell on one line.
func (c cell) Words() string {
	parts := append([]string{c.Range}, c.Notes...)
	if c.In != "" {
		parts = append([]string{"in " + c.In}, parts...)
	}
	if more := strings.Join(given(parts), "; "); more != "" {
		return c.Text + " (" + more + ")"
	}
	return c.Text
}

// cellOf is the cell of a figure in the rounds of a column.
func cellOf(f figure, of runs) cell {
	c := cell{Column: of.column, Absent: true, Text: none}
	if of.why != "" {
		c.Text = of.why
		return c
	}
	if f.cannot != nil && f.cannot(of.column) != "" {
		c.Text = f.cannot(of.column)
		return c
	}
	values := of.known(f.get)
	if len(values) == 0 {
		if f.absent != nil {
			c.Text = f.absent(of)
		}
		return c
	}
	c.Absent, c.Text = false, f.show(values.median())
	c.Range = values.spread(f.show)
	if of.failed > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d not completed", of.failed))
	}
	if of.invalid > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%d not valid", of.invalid))
	}
	if f.notes != nil {
		c.Notes = append(c.Notes, given(f.notes(of))...)
	}
	apart := ""
	if f.apart != nil {
		apart = f.apart(of.column)
	}
	c.Notes = append(c.Notes, given([]string{apart})...)
	if f.better != neither && apart == "" {
		c.values = values
	}
	return c
}

// spread is the range of the values, and how many there are.
func (f perRound) spread(show func(float64) string) string {
	count := fmt.Sprintf("n=%d", len(f))
	least, most := show(slices.Min(f)), show(slices.Max(f))
	if least == most {
		return count
	}
	return least + " to " + most + ", " + count
}

// touches reports whether the ranges of two columns have a value in common.
func (f perRound) touches(other perRound) bool {
	return slices.Min(f) <= slices.Max(other) && slices.Min(other) <= slices.Max(f)
}

// markText says how cells are marked: all forms of the report show it.
const markText = "its range touches that of no cell that is not marked. Cells of one round are not compared, nor in rows of the worst scenario those of columns that ran fewer of them"

// mark marks the best cells of a row: the one with the best median, and those whose ranges touch its range. None is marked
// where a range of theirs touches that of a cell which is not, and where all are alike. Cells that are not compared have no
// part in it.
func mark(cells []cell, better direction) {
	if better == neither {
		return
	}
	var all []*cell
	for i := range cells {
		if cells[i].compared() {
			all = append(all, &cells[i])
		}
	}
	if len(all) == 0 {
		return
	}
	best := slices.MinFunc(all, func(a, b *cell) int { return better.compare(a.values.median(), b.values.median()) }).values
	var ahead, behind []*cell
	for _, c := range all {
		if c.values.touches(best) {
			ahead = append(ahead, c)
		} else {
			behind = append(behind, c)
		}
	}
	for _, a := range ahead {
		if slices.ContainsFunc(behind, func(b *cell) bool { return a.values.touches(b.values) }) {
			return
		}
	}
	for _, a := range ahead {
		a.Better = len(behind) > 0
	}
}

// direction is which values of a figure are better.
type direction int

const (
	neither direction = iota
	less
	more
)

// compare is negative if a is better than b, as cmp.Compare.
func (d direction) compare(a, b float64) int {
	if d == more {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// perRound is one value of each round.
type perRound []float64

func (m runs) each(value func(run) float64) perRound {
	var f perRound
	for _, o := range m.of {
		f = append(f, value(o))
	}
	return f
}

// known are a figure's values in the rounds that have it. What never happened takes for ever.
func (m runs) known(get func(run) (float64, bool)) perRound {
	var f perRound
	for _, o := range m.of {
		if value, ok := get(o); ok {
			if value < 0 {
				value = math.Inf(1)
			}
			f = append(f, value)
		}
	}
	return f
}
