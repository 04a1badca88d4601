package main

import (
	reports "github.com/seed-20419f34/rollcall/cmd/bench/report"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	verdicts "github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// comparisonSummary is what bench compare prints as JSON. Scripts rely on its members' names.
type comparisonSummary struct {
	Report  string         `json:"report"` // directory
	LeftOut []string       `json:"left_out"`
	Trials  []trialSummary `json:"trials"`
	Broken  []string       `json:"broken"` // limits
}

// trialSummary is what one trial means.
type trialSummary struct {
	Scenario string           `json:"scenario"`
	Mode     scenario.Mode    `json:"mode"`
	Round    int              `json:"round"`
	Failed   string           `json:"failed,omitempty"` // why it could not be completed
	Verdict  verdicts.Verdict `json:"verdict"`
}

func newComparisonSummary(dir string, r *reports.Report) comparisonSummary {
	s := comparisonSummary{Report: dir, LeftOut: r.Plan.LeftOut, Broken: r.Broken()}
	for i, t := range r.Trials {
		s.Trials = append(s.Trials, trialSummary{t.Scenario, t.Mode, t.Round, t.Failed, r.Verdicts[i]})
	}
	return s
}
