package report

import (
	_ "embed" // for the page's parts
	"html/template"
	"io"
	"math"
	"regexp"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// The parts of the page. The page contains all of them, so that it opens without a network.
var (
	//go:embed assets/page.tmpl
	pageTemplate string
	//go:embed assets/report.css
	pageStyle string
	//go:embed assets/report.js
	pageScript string
	//go:embed assets/echarts.common.min.js
	chartsScript string
)

// page is what the template shows.
type page struct {
	*Report
	Title, Advice, Evidence, Marks, Plan string
	Columns                              []column
	Chosen                               []row
	Scenarios                            []scenarioPart
	Files                                []string
	Plots                                plots
	Style                                template.CSS
	Charts, Script                       template.JS
}

// scenarioPart is a scenario's part of the page.
type scenarioPart struct {
	scenario.Scenario
	Rows, Detail []row
	Plot         bool
}

func (r *Report) writeHTML(w io.Writer) error {
	parsed, err := template.New("page").Funcs(template.FuncMap{"glued": glued}).Parse(pageTemplate)
	if err != nil {
		return err
	}
	p := page{
		Report: r, Title: title, Advice: Advice, Evidence: r.evidence(), Marks: markText, Plan: r.planText(), Columns: r.columns(), Chosen: r.chosen(),
		Files: []string{JSONFile, BenchmarkFile, MarkdownFile}, Plots: plots{Curves: r.curves()}, Style: template.CSS(pageStyle), Charts: template.JS(chartsScript), Script: template.JS(pageScript),
	}
	for _, c := range r.columns() {
		p.Plots.Columns = append(p.Plots.Columns, plotColumn{c.Name, c.Heading(), c.Class})
	}
	for _, s := range r.ran() {
		part := scenarioPart{Scenario: s}
		for _, row := range r.table(s) {
			if row.detail {
				part.Detail = append(part.Detail, row)
				continue
			}
			part.Rows = append(part.Rows, row)
		}
		if line := r.timeline(s); len(line.Columns) > 0 {
			part.Plot = true
			p.Plots.Timelines = append(p.Plots.Timelines, line)
		}
		p.Scenarios = append(p.Scenarios, part)
	}
	return parsed.Execute(w, p)
}

// numberAndUnit matches the end of a number, and the unit after it.
var numberAndUnit = regexp.MustCompile(`(\d) (s\b|ms\b|µs\b|%|B\b|kB\b|MB\b|GB\b)`)

// glued keeps a line from breaking between a number and its unit.
func glued(text string) string { return numberAndUnit.ReplaceAllString(text, "$1\u00a0$2") }

// plots is the data of the plots, as JSON in the page.
type plots struct {
	Columns   []plotColumn `json:"columns"`
	Timelines []timeline   `json:"timelines"`
	Curves    []curve      `json:"curves"`
}

type plotColumn struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Class string `json:"class"`
}

// timeline shows the first round that counts of each column in a scenario, per 100 ms.
type timeline struct {
	Scenario string   `json:"scenario"`
	Columns  []moment `json:"columns"`
}

type moment struct {
	Column string `json:"column"`
	Bands  []band `json:"bands"`
	// percent answered of the calls that were due, for the clients of the first fault's nodes; empty if it struck none
	Struck samples `json:"struck"`
	Others samples `json:"others"` // the same for all others
	Age    samples `json:"age"`    // of the oldest stale answer, s
}

// band is a fault or storm.
type band struct {
	From float64 `json:"from"` // seconds
	To   float64 `json:"to"`
	Text string  `json:"text"`
}

// timeline has no columns if no round counts, or for heartbeats alone, which look the same all the time.
func (r *Report) timeline(s scenario.Scenario) timeline {
	line := timeline{Scenario: s.Name}
	for _, c := range r.columns() {
		of := r.runs(s, c)
		if len(of.of) > 0 && !s.HeartbeatsOnly() {
			line.Columns = append(line.Columns, momentsOf(of.of[0].Trial, s))
		}
	}
	return line
}

func momentsOf(t *trial.Trial, s scenario.Scenario) moment {
	m := moment{Column: t.Column, Bands: []band{}, Age: make(samples, bins(t)), Struck: samples{}}
	var struck []int
	for _, f := range t.Faults {
		m.Bands = append(m.Bands, band{f.From.Seconds(), max(f.From, f.To).Seconds(), f.Text})
	}
	for _, storm := range s.Storms {
		from := storm.At.In(t.Length.Duration()).Seconds()
		m.Bands = append(m.Bands, band{from, from + storm.For.In(t.Length.Duration()).Seconds(), "storm"})
	}
	if len(t.Faults) > 0 {
		struck = t.Faults[0].Nodes
	}
	if len(struck) > 0 && len(struck) < len(t.Nodes) {
		m.Struck = success(t, func(node int) bool { return slices.Contains(struck, node) })
	}
	m.Others = success(t, func(node int) bool { return len(m.Struck) == 0 || !slices.Contains(struck, node) })
	for _, a := range verdict.Ages(t) {
		if slot := int(a.Called / trial.Of(trial.BinLength)); slot >= 0 && slot < len(m.Age) {
			if age := rounded(a.Age.Seconds()); m.Age[slot] == nil || *m.Age[slot] < *age {
				m.Age[slot] = age
			}
		}
	}
	return m
}

// success returns the share of stock clients' calls that were answered, for clients with certain home nodes.
func success(t *trial.Trial, home func(node int) bool) samples {
	due, answered := make([]int, bins(t)), make([]int, bins(t))
	for _, series := range t.Series {
		if !home(series.Node) || !series.Operation.Reads() && !series.Operation.Writes() {
			continue
		}
		for _, b := range series.Bins {
			if b.Number < len(due) {
				due[b.Number] += b.Due()
				answered[b.Number] += b.Answered()
			}
		}
	}
	s := make(samples, len(due))
	for i := range s {
		if due[i] > 0 {
			s[i] = rounded(100 * float64(answered[i]) / float64(due[i]))
		}
	}
	return s
}

// samples are values at every 100 ms from 0 on; missing ones are nil, or null in JSON.
type samples []*float64

// rounded returns what a plot can show of a value.
func rounded(v float64) *float64 {
	v = math.Round(v*100) / 100
	return &v
}

// bins returns the length of a trial's load in steps of 100 ms.
func bins(t *trial.Trial) int { return int(t.Length / trial.Of(trial.BinLength)) }

// curve is what renewals cost in a column: points of renewals per second, processors and bytes written per second and
// node.
type curve struct {
	Column string       `json:"column"`
	Points [][3]float64 `json:"points"`
}

func (r *Report) curves() []curve {
	found := []curve{}
	for _, c := range r.columns() {
		line := curve{Column: c.Name}
		for _, s := range r.ran() {
			of := r.runs(s, c)
			middle := func(get func(verdict.Cost) float64) float64 {
				return of.values(func(v *verdict.Verdict) float64 { return get(v.Cost) }).median()
			}
			if len(of.of) > 0 && s.HeartbeatsOnly() {
				line.Points = append(line.Points, [3]float64{
					middle(func(c verdict.Cost) float64 { return c.Renewals }),
					middle(func(c verdict.Cost) float64 { return c.CPU }), middle(func(c verdict.Cost) float64 { return c.Written }),
				})
			}
		}
		if len(line.Points) > 0 {
			found = append(found, line)
		}
	}
	return found
}
