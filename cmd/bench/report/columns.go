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
	Class string // for style sheets: one of a few words, whatever the column is called
}

// ownHues are the columns that keep their colours in every report; moreHues is how many colours the others share.
var ownHues = []string{"cp", "ap", "eureka"}

const moreHues = 4

// columns returns the compared columns, in the plan's order.
func (r *Report) columns() []column {
	var found []column
	others := 0
	for _, c := range r.Plan.Columns {
		class := c.Name
		if !slices.Contains(ownHues, c.Name) {
			class = fmt.Sprintf("more-%d", others%moreHues)
			others++
		}
		found = append(found, column{c, class})
	}
	return found
}

// About describes a column.
func (c column) About() string {
	if c.System != scenario.Rollcall {
		return fmt.Sprintf("%s as it is published, with its defaults", c.Heading())
	}
	if len(c.Settings) == 0 {
		return fmt.Sprintf("Rollcall in mode %s, with its defaults", c.Mode)
	}
	var settings []string
	for _, key := range slices.Sorted(maps.Keys(c.Settings)) {
		settings = append(settings, key+": "+c.Settings[key])
	}
	return fmt.Sprintf("Rollcall in mode %s, with %s", c.Mode, strings.Join(settings, ", "))
}

// run is a completed, valid trial and its verdict.
type run struct {
	*trial.Trial
	verdict *verdict.Verdict
}

// runs are a scenario's rounds in one column that count: those that were completed and are valid.
type runs struct {
	column
	scenario scenario.Scenario
	of       []run
	left     []string // why other rounds do not count, without duplicates
}

func (r *Report) runs(s scenario.Scenario, c column) runs {
	found := runs{column: c, scenario: s}
	for i := range r.Trials {
		t := &r.Trials[i]
		if t.Scenario != s.Name || t.Column != c.Name {
			continue
		}
		switch why := r.left(i); {
		case why == "":
			found.of = append(found.of, run{t, &r.Verdicts[i]})
		case !slices.Contains(found.left, why):
			found.left = append(found.left, why)
		}
	}
	return found
}

// why says why no round counts.
func (m runs) why() string {
	return cmp.Or(strings.Join(m.left, ", "), m.Cannot(m.scenario), "not run")
}

// cell is one column's part of a row.
type cell struct {
	Column column
	Text   string // the median of the rounds, or why it is missing
	Range  string // from the minimum to the maximum of the rounds, and how many there are
	Note   string // empty for none
	Better bool   // its range touches that of no compared cell that is not marked
	Absent bool   // there is no figure: Text says why

	values  perRound // empty for none
	compare bool     // with other cells
}

// cellOf returns the cell of a figure in the rounds of a column.
func cellOf(f figure, of runs) cell {
	c := cell{Column: of.column, Absent: true, Text: none}
	foreign := of.System != scenario.Rollcall
	switch {
	case len(of.of) == 0:
		c.Text = of.why()
		return c
	case foreign && f.cannot != "":
		c.Text = f.cannot
		return c
	}
	c.values = of.values(f.get)
	if len(c.values) == 0 {
		if f.absent != nil {
			c.Text = f.absent(of.column)
		}
		return c
	}
	c.Absent, c.Text, c.Range = false, f.unit.show(c.values.median()), c.values.spread(f.unit.show)
	notes := slices.Clone(of.left)
	if f.note != nil {
		notes = append(notes, f.note(of))
	}
	if foreign {
		notes = append(notes, f.apart)
	}
	c.Note = strings.Join(slices.DeleteFunc(notes, func(n string) bool { return n == "" }), "; ")
	c.compare = len(c.values) > 1 && !(foreign && f.apart != "") // a single round has no range
	return c
}

// Words returns the cell on one line.
func (c cell) Words() string {
	switch {
	case c.Range == "":
		return c.Text
	case c.Note == "":
		return c.Text + " (" + c.Range + ")"
	}
	return c.Text + " (" + c.Range + "; " + c.Note + ")"
}

// markText explains how cells are marked: all forms of the report show it.
const markText = "its range touches that of no cell that is not marked. Cells of one round are not compared"

// mark marks the best cells of a row: the one with the best median, and those whose ranges touch its range. It marks
// none if one of their ranges touches that of an unmarked cell, or if all are alike. Cells that are not compared are
// ignored.
func mark(cells []cell, better direction) {
	var all []*cell
	for i := range cells {
		if cells[i].compare {
			all = append(all, &cells[i])
		}
	}
	if len(all) == 0 || better == neither {
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

// direction says which values of a figure are better.
type direction int

const (
	neither direction = iota
	less
	more
)

// compare is negative if a is better than b, like cmp.Compare.
func (d direction) compare(a, b float64) int {
	if d == more {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// perRound is one value of each round.
type perRound []float64

// values returns a figure's values in the rounds that have it. What never happened counts as infinitely long.
func (m runs) values(get getter) perRound {
	var f perRound
	for _, o := range m.of {
		value := get(o.verdict)
		if value < 0 {
			value = math.Inf(1)
		}
		if !math.IsNaN(value) {
			f = append(f, value)
		}
	}
	return f
}

// median returns the median value, for an even number the lower one, so that it is one that was measured.
func (f perRound) median() float64 {
	return slices.Sorted(slices.Values(f))[(len(f)-1)/2]
}

// zero reports whether there are only zeros, or no values.
func (f perRound) zero() bool { return !slices.ContainsFunc(f, func(v float64) bool { return v != 0 }) }

// spread returns the range of the values, and how many there are.
func (f perRound) spread(show func(float64) string) string {
	number := fmt.Sprintf("n=%d", len(f))
	least, most := show(slices.Min(f)), show(slices.Max(f))
	if least == most {
		return number
	}
	return least + " to " + most + ", " + number
}

// touches reports whether the ranges of two columns have a value in common.
func (f perRound) touches(other perRound) bool {
	return slices.Min(f) <= slices.Max(other) && slices.Min(other) <= slices.Max(f)
}
