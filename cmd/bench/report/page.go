package report

import (
	_ "embed" // of the page's parts
	"html/template"
	"io"

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
	Title     string
	Machine   string
	Plan      string
	Limits    string
	Broken    []string
	TradeOffs []tradeOff
	Main      string // the name of the scenario whose time line comes first
	MainTitle string
	MainSays  []string
	Scenarios []scenarioPart
	Removal   bool
	Ways      bool
	Backlogs  []scenarioPart
	Costs     []costBar
	Files     []string
	Plots     plots
	Style     template.CSS
	Charts    template.JS
	Script    template.JS
}

// scenarioPart is a scenario's part of the page.
type scenarioPart struct {
	Name, Title, About string
	Sentences          []string
	Faults             []faultRow
	Rounds             int
	Shown              bool     // there is a time line
	Failed             []string // trials that could not be completed, a sentence each
	Broken             bool
	Figures            []figureRow
	Operations         []operationRow
}

// faultRow is a fault of the trials that the time line shows.
type faultRow struct {
	Number int
	Mode   scenario.Mode
	band
}

// plots is the data of all plots, as JSON in the page.
type plots struct {
	Main      string          `json:"main"` // a scenario
	Modes     []scenario.Mode `json:"modes"`
	Timelines []timeline      `json:"timelines"`
	Ways      []wayPlot       `json:"ways"`
	Removal   removalPlot     `json:"removal"`
}

func (r *Report) writeHTML(w io.Writer) error {
	parsed, err := template.New("page").Funcs(template.FuncMap{"seconds": showSeconds}).Parse(pageTemplate)
	if err != nil {
		return err
	}
	return parsed.Execute(w, r.page())
}

func (r *Report) page() page {
	p := page{
		Title: title, Machine: r.machineText(), Plan: r.planText(), Limits: r.limitsText(), Broken: r.Broken(), TradeOffs: r.tradeOffs(),
		Costs: r.costs(), Plots: r.plots(), Files: []string{JSONFile, CSVFile, MarkdownFile},
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
	p := plots{Main: main.Name, Modes: r.modes(), Removal: r.removal()}
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
	p.Ways = r.visibility(compared)
	return p
}

func (r *Report) scenarioPart(s scenario.Scenario, line timeline) scenarioPart {
	part := scenarioPart{
		Name: s.Name, Title: s.Title, About: s.About, Sentences: r.sentences(s.Name), Rounds: r.rounds(s.Name), Shown: len(line.Modes) > 0,
		Figures: r.figures(s.Name), Operations: r.operations(s.Name),
	}
	for _, mode := range r.modes() {
		if line.Modes[mode] == nil {
			continue
		}
		for i, b := range line.Modes[mode].Bands {
			part.Faults = append(part.Faults, faultRow{Number: i + 1, Mode: mode, band: b})
		}
	}
	for i, t := range r.Trials {
		if t.Scenario != s.Name {
			continue
		}
		part.Broken = part.Broken || len(r.Verdicts[i].Broken) > 0
		if t.Failed != "" {
			part.Failed = append(part.Failed, string(t.Mode)+": "+t.Failed)
		}
	}
	return part
}
