package report

import (
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
)

// row is a figure in every column.
type row struct {
	Name          string
	Scenario      string // its name
	Cells         []cell
	brief, detail bool
}

// rowOf returns the row of a figure in a scenario.
func (r *Report) rowOf(f figure, s scenario.Scenario) row {
	found := row{Name: f.name, Scenario: s.Name, brief: f.brief, detail: f.detail}
	for _, c := range r.columns() {
		found.Cells = append(found.Cells, cellOf(f, r.runs(s, c)))
	}
	mark(found.Cells, f.better)
	return found
}

// table returns the rows of a scenario's table. It leaves out rows where no column says anything.
func (r *Report) table(s scenario.Scenario) []row {
	var rows []row
	for _, f := range figures() {
		if found := r.rowOf(f, s); found.says(f) {
			rows = append(rows, found)
		}
	}
	return rows
}

// says reports whether any cell of a figure is worth a row.
func (w row) says(f figure) bool {
	return slices.ContainsFunc(w.Cells, func(c cell) bool {
		return !c.Absent && !(f.rare && c.values.zero())
	})
}

// The chosen rows: each matters to a caller or an operator. People chose them; numbers come from the trials.
var chosen = []struct {
	name     string
	figure   string // from the scenario's table
	scenario string
}{
	{"Leader killed: writes stop for", "longest time without an answered write", "leader-killed"},
	{"Acknowledged changes lost by that kill", "acknowledged changes lost", "leader-killed"},
	{"Two of three servers killed: writes stop for", "longest time without an answered write", "majority-lost"},
	{"All servers killed: acknowledged changes lost", "acknowledged changes lost", "servers-restart"},
	{"Server cut off with its clients: writes accepted there", "writes answered, " + during, "partition-minority"},
	{"Server cut off with its clients: lists answered there", "fetches and deltas answered, " + during, "partition-minority"},
	{"Server cut off with its clients: stale answers there", "stale answers to probes, " + during, "partition-minority"},
	{"New instance in another server's list, p99", "a registration is seen at another node, by list, p99", "steady"},
}

// chosen returns the chosen rows of the scenarios that ran.
func (r *Report) chosen() []row {
	var rows []row
	for _, c := range chosen {
		all := figures()
		f := all[slices.IndexFunc(all, func(f figure) bool { return f.name == c.figure })]
		found := r.rowOf(f, r.scenario(c.scenario))
		if found.says(figure{}) {
			found.Name = c.name
			rows = append(rows, found)
		}
	}
	return rows
}
