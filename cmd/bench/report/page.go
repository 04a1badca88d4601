package report

import (
	_ "embed" // of the page's parts
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strconv"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
)

// The parts of the page. It holds all of them, so that it opens without a network.
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
	Title          string
	Machine        string
	Plan           string
	Evidence       string
	Valid          string // what the banner says of a run that is not valid
	Invalid        []string
	Limits         string
	Broken         []string
	Columns        []column
	Groups         []group
	Marks          string // how cells are marked
	Lacking        []string
	Heads          []string // of the matrix
	Matrix         []matrixRow
	OperationHeads []string
	Main           string // the name of the scenario whose time line comes first
	MainTitle      string
	MainSays       []string
	Scenarios      []scenarioPart
	Removal        bool
	Ways           bool
	Backlogs       []scenarioPart
	Priced         []column // those that ran a load of heartbeats
	Fleets         []row
	FleetTitle     string
	FleetAbout     string
	Uncarried      []string
	Files          []string
	Plots          plots
	Style          template.CSS
	Charts         template.JS
	Script         template.JS
}

// scenarioPart is a scenario's part of the page.
type scenarioPart struct {
	Name, Title, About string
	Sentences          []string
	Faults             []faultRow
	Rounds             int
	Shown              bool     // there is a time line
	Absent             []string // columns that have no figures here, a sentence each
	Failed             []string // trials that could not be completed, a sentence each
	Broken             bool
	Figures            []row
	Operations         []operationRow
	Examples           []example
}

// faultRow is a fault of the trials that the time line shows, in words; columns have one if the words are the same.
type faultRow struct {
	Sign    string // by which the plot refers to it; empty: it is the only one
	Columns []column
	All     bool // of those that are shown
	Text    string
}

// plots is the data of all plots, as JSON in the page.
type plots struct {
	Main      string       `json:"main"` // a scenario
	Columns   []plotColumn `json:"columns"`
	Timelines []timeline   `json:"timelines"`
	Ways      []wayPlot    `json:"ways"`
	Removal   removalPlot  `json:"removal"`
	Curves    []curve      `json:"curves"`
}

// plotColumn is how plots show a column.
type plotColumn struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Class string `json:"class"`
}

func (r *Report) writeHTML(w io.Writer) error {
	parsed, err := template.New("page").Funcs(template.FuncMap{"glued": glued, "anchor": anchor}).Parse(pageTemplate)
	if err != nil {
		return err
	}
	return parsed.Execute(w, r.page())
}

func (r *Report) page() page {
	p := page{
		Title: r.title(), OperationHeads: operationHeads(), Machine: r.machineText(), Plan: r.planText(), Evidence: r.evidence(), Valid: r.validText(), Invalid: r.Invalid(), Limits: r.limitsText(), Broken: r.Broken(),
		Columns: r.columns(), Groups: r.groups(), Marks: markText, FleetTitle: fleetTitle, FleetAbout: r.fleetAbout(), Lacking: r.lacking(), Heads: matrixHeads, Matrix: r.matrix(),
		Priced: r.pricedColumns(), Fleets: r.fleetRows(), Uncarried: r.uncarried(), Plots: r.plots(), Files: []string{JSONFile, CSVFile, MarkdownFile},
		Style: template.CSS(pageStyle), Charts: template.JS(chartsScript), Script: template.JS(pageScript),
	}
	for i, s := range r.ran() {
		part := r.scenarioPart(s, p.Plots.Timelines[i])
		p.Scenarios = append(p.Scenarios, part)
		if p.Plots.Timelines[i].hasBacklog() {
			p.Backlogs = append(p.Backlogs, part)
		}
		if s.Name == p.Plots.Main && part.Shown {
			p.Main, p.MainTitle, p.MainSays = s.Name, s.Title, part.Sentences
		}
	}
	p.Ways = len(p.Plots.Ways) > 0
	p.Removal = len(p.Plots.Removal.Died)+len(p.Plots.Removal.Canceled) > 0
	return p
}

func (r *Report) plots() plots {
	main := r.telling()
	p := plots{Main: main.Name, Removal: r.removal(), Curves: r.curves()}
	for _, c := range r.columns() {
		p.Columns = append(p.Columns, plotColumn{c.Name, c.Heading(), c.Class})
	}
	for _, s := range r.ran() {
		p.Timelines = append(p.Timelines, r.timelineOf(s))
	}
	compared := []scenario.Scenario{}
	if calm := r.calm(); calm.Name != "" && calm.Name != main.Name {
		compared = append(compared, calm)
	}
	if main.Name != "" {
		compared = append(compared, main)
	}
	p.Ways = slices.Concat([]wayPlot{}, r.visibility(compared, false), r.visibility(r.ran(), true), r.ages(compared))
	return p
}

func (r *Report) scenarioPart(s scenario.Scenario, line timeline) scenarioPart {
	part := scenarioPart{
		Name: s.Name, Title: s.Title, About: s.About, Sentences: r.sentences(s.Name), Rounds: r.rounds(s.Name), Shown: len(line.Columns) > 0, Faults: faultRows(line, r.columns()),
		Figures: r.figures(s), Operations: r.operations(s), Absent: r.absent(s), Examples: r.examples(s.Name),
	}
	for i, t := range r.Trials {
		if t.Scenario != s.Name {
			continue
		}
		part.Broken = part.Broken || len(r.broken(i)) > 0
		if t.Failed != "" {
			part.Failed = append(part.Failed, r.Column(t.Column).Heading()+": "+t.Failed)
		}
	}
	return part
}

func faultRows(line timeline, columns []column) []faultRow {
	var rows []faultRow
	for _, c := range columns {
		if line.Columns[c.Name] == nil {
			continue
		}
		for number, b := range line.Columns[c.Name].Bands {
			row := faultRow{Columns: []column{c}, Text: b.words()}
			if len(line.Columns[c.Name].Bands) > 1 {
				row.Sign = circled(number)
			}
			same := slices.IndexFunc(rows, func(other faultRow) bool { return other.Sign == row.Sign && other.Text == row.Text })
			if same >= 0 {
				rows[same].Columns = append(rows[same].Columns, c)
				continue
			}
			rows = append(rows, row)
		}
	}
	for i := range rows {
		rows[i].All = len(rows[i].Columns) == len(line.Columns)
	}
	return rows
}

// words say what happened when, to a tenth of a second.
func (b band) words() string {
	if b.To <= b.From {
		return fmt.Sprintf("%s at %.1f s", b.Text, b.From)
	}
	return fmt.Sprintf("%s from %.1f to %.1f s", b.Text, b.From, b.To)
}

// circled is a number, from 0 for the first, as the plots show it.
func circled(number int) string {
	if number < 20 {
		return string(rune('①' + number))
	}
	return strconv.Itoa(number + 1)
}

// numberAndUnit is the end of a number, and the unit behind it.
var numberAndUnit = regexp.MustCompile(`(\d) (s\b|ms\b|µs\b|%|B\b|kB\b|MB\b|GB\b)`)

// glued keeps a line from ending between a number and its unit.
func glued(text string) string { return numberAndUnit.ReplaceAllString(text, "$1\u00a0$2") }
