package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// Agreement is how far two runs say the same of two columns. A pair is two columns in one row of a scenario's table, or of the
// costs, that both compare.
type Agreement struct {
	Apart     int      `json:"apart"`      // pairs whose ranges are apart in both runs
	Opposite  []string `json:"opposite"`   // of these, the pairs in which another column is the greater one
	ApartOnce int      `json:"apart_once"` // pairs whose ranges are apart in one run only
	Ratios    int      `json:"ratios"`     // pairs of which both runs know a ratio of the columns, and which are not alike in all rounds
	Outside   []string `json:"outside"`    // of these, the pairs whose ratio of medians in the second run is not within that of the first run's rounds
	Alone     int      `json:"alone"`      // pairs that only one run has
	Differ    []string `json:"differ"`     // in what the runs differ that ratios may depend on; it is no reason
	Reasons   []string `json:"reasons"`    // why the runs do not agree; empty: they do
}

const (
	leastWithin = 0.9 // the share of ratios that have to be within the first run's range
	ratioDigits = 3   // the significant digits to which ratios are compared; as many are shown
)

// Hold holds a second run against this one.
func (r *Report) Hold(second *Report) Agreement {
	a := Agreement{Opposite: []string{}, Outside: []string{}, Differ: r.differFrom(second)}
	others := second.pairs()
	for name, one := range r.pairs() {
		two, ok := others[name]
		if !ok {
			a.Alone++
			continue
		}
		delete(others, name)
		a.add(name, one, two)
	}
	a.Alone += len(others)
	slices.Sort(a.Opposite)
	slices.Sort(a.Outside)
	a.Reasons = append(r.otherThan(second), a.disagreements()...)
	return a
}

func (a *Agreement) add(name string, one, two pair) {
	switch order, other := one.order(), two.order(); {
	case order != 0 && other != 0:
		a.Apart++
		if order != other {
			a.Opposite = append(a.Opposite, name)
		}
	case order != other:
		a.ApartOnce++
	}
	least, _, most := one.ratio()
	_, ratio, _ := two.ratio()
	if numbers(least, most, ratio) && !alike(one, two) {
		a.Ratios++
		if ratio < least || ratio > most {
			a.Outside = append(a.Outside, fmt.Sprintf("%s: %s, not %s to %s", name, threeDigits(ratio), threeDigits(least), threeDigits(most)))
		}
	}
}

// pair is the values of two columns in a row.
type pair struct{ a, b perRound }

// pairs are those of the scenarios' tables and of the costs, each by a name of its own, in which the columns are in the order of
// their names. The other rows that help to choose have the same values.
func (r *Report) pairs() map[string]pair {
	all := make(map[string]pair)
	add := func(where string, w row) {
		cells := slices.DeleteFunc(slices.Clone(w.Cells), func(c cell) bool { return !c.compared() })
		slices.SortFunc(cells, func(a, b cell) int { return cmp.Compare(a.Column.Name, b.Column.Name) })
		for i, a := range cells {
			for _, b := range cells[i+1:] {
				all[fmt.Sprintf("%s: %s, %s over %s", where, w.Name, a.Column.Name, b.Column.Name)] = pair{a.values, b.values}
			}
		}
	}
	for _, s := range r.ran() {
		for _, w := range r.figures(s) {
			add(s.Name, w)
		}
	}
	for _, q := range r.spending() {
		if w, ok := r.ask(q); ok {
			add("costs", w)
		}
	}
	return all
}

// order is negative if the first one is below the second in every round, positive if it is above; 0: their ranges touch.
func (p pair) order() int {
	if p.a.touches(p.b) {
		return 0
	}
	return cmp.Compare(slices.Max(p.a), slices.Min(p.b))
}

// ratio is the ratio of the medians, and the least and most that a round of one and a round of the other give, as they are shown.
func (p pair) ratio() (least, of, most float64) {
	shown := func(a, b float64) float64 { return significant(a/b, ratioDigits) }
	return shown(slices.Min(p.a), slices.Max(p.b)), shown(p.a.median(), p.b.median()), shown(slices.Max(p.a), slices.Min(p.b))
}

// numbers reports whether there are such ratios. Where a round is 0, or never came to an end, there is none.
func numbers(ratios ...float64) bool {
	return !slices.ContainsFunc(ratios, func(v float64) bool { return v == 0 || math.IsNaN(v) || math.IsInf(v, 0) })
}

// alike reports whether all rounds of both runs are the same in both columns, as where everything was answered: such ratios
// say nothing.
func alike(one, two pair) bool {
	all := slices.Concat(one.a, one.b, two.a, two.b)
	return slices.Min(all) == slices.Max(all)
}

// otherThan says why what two runs say must not be held against each other.
func (r *Report) otherThan(second *Report) []string {
	var why []string
	for _, run := range []struct {
		name string
		of   *Report
	}{{"first", r}, {"second", second}} {
		if run.of.notValid() {
			why = append(why, fmt.Sprintf("the %s run is not valid", run.name))
		}
	}
	if r.Plan.Length != second.Plan.Length {
		why = append(why, fmt.Sprintf("the load lasts %s in the first run and %s in the second", showSeconds(r.Plan.Length.Seconds()), showSeconds(second.Plan.Length.Seconds())))
	}
	for _, s := range r.Scenarios {
		if slices.ContainsFunc(second.Scenarios, func(other scenario.Scenario) bool {
			return other.Name == s.Name && !reflect.DeepEqual(whatHappens(s), whatHappens(other))
		}) {
			why = append(why, fmt.Sprintf("the scenario %s does not do the same in both runs", s.Name))
		}
	}
	for _, c := range r.Plan.Columns {
		if slices.ContainsFunc(second.Plan.Columns, func(other scenario.Column) bool {
			return other.Name == c.Name && (other.System != c.System || other.Mode != c.Mode || !maps.Equal(other.Settings, c.Settings))
		}) {
			why = append(why, fmt.Sprintf("the column %s is not the same in both runs", c.Name))
		}
	}
	if slices.EqualFunc(r.Trials, second.Trials, func(a, b trial.Trial) bool {
		return a.Scenario == b.Scenario && a.Column == b.Column && a.Took == b.Took
	}) {
		why = append(why, "both files hold the same run")
	}
	return why
}

// differFrom says in what else than what they do the runs differ.
func (r *Report) differFrom(second *Report) []string {
	other := []string{}
	add := func(what string, one, two any) {
		if one != two {
			other = append(other, fmt.Sprintf("%s: %v, and %v in the second run", what, one, two))
		}
	}
	kind := func(m trial.Machine) string {
		return fmt.Sprintf("%s, %d cores, %s of memory, %s", m.CPU, m.Cores, m.Memory, m.Disk)
	}
	add("the machine", kind(r.Machine), kind(second.Machine))
	add("the version of the program", r.Version, second.Version)
	add("the seed", r.Plan.Seed, second.Plan.Seed)
	return other
}

// whatHappens is a scenario without its texts, its limits and its place among the others.
func whatHappens(s scenario.Scenario) scenario.Scenario {
	s.Title, s.About, s.Limits, s.Quick, s.Chosen, s.Twin = "", "", nil, false, false, ""
	return s
}

// disagreements says what the runs say otherwise, or that they say nothing.
func (a Agreement) disagreements() []string {
	var why []string
	if a.Apart == 0 {
		why = append(why, "no two columns are apart in both runs; want two rounds at least of the same scenarios and columns")
	}
	if a.Ratios == 0 {
		why = append(why, "no ratio of two columns is known in both runs")
	}
	if len(a.Opposite) > 0 {
		why = append(why, fmt.Sprintf("the columns of %s are the other way round in the second run", counted(len(a.Opposite), "pair")))
	}
	if float64(a.Ratios-len(a.Outside)) < leastWithin*float64(a.Ratios) {
		why = append(why, fmt.Sprintf("%d of %s lie outside of the first run's range; want %s of them at most", len(a.Outside), counted(a.Ratios, "ratio"), showShare(1-leastWithin)))
	}
	return why
}

// Write says how far the runs agree, and names the pairs that do not.
func (a Agreement) Write(out io.Writer) error {
	text := fmt.Sprintf("Two columns are apart in both runs in %s, of which %d are the other way round.\n", counted(a.Apart, "pair"), len(a.Opposite))
	for _, name := range a.Opposite {
		text += "  " + onOneLine(name) + "\n"
	}
	text += fmt.Sprintf("They are apart in one run only in %s. %s only one run has.\n", counted(a.ApartOnce, "pair"), capital(counted(a.Alone, "pair")))
	text += fmt.Sprintf("Of %s, %d lie within the range of the first run's rounds.\n", counted(a.Ratios, "ratio"), a.Ratios-len(a.Outside))
	for _, name := range a.Outside {
		text += "  " + onOneLine(name) + "\n"
	}
	for _, what := range a.Differ {
		text += "The runs differ in " + what + ".\n"
	}
	_, err := io.WriteString(out, text)
	return err
}
