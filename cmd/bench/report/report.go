// Package report turns a comparison into what people read: a self-contained HTML page, a Markdown summary, CSV, JSON,
// and a summary for the terminal.
package report

import (
	"io"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// Report is a comparison and what it means.
type Report struct {
	*trial.Comparison
	Verdicts []verdict.Verdict // of the trials, in their order
}

// New judges every trial of a comparison.
func New(c *trial.Comparison) *Report { panic("not written") }

// The files of a report, in its directory.
const (
	HTMLFile     = "report.html"
	MarkdownFile = "report.md"
	JSONFile     = "report.json" // {"comparison": …, "verdicts": […]}
	CSVFile      = "report.csv"  // one row per trial, operation and 100 ms
)

// Write writes the four files into dir, which it makes if it is absent.
func (r *Report) Write(dir string) error { panic("not written") }

// Read reads a report's JSON file. Verdicts are computed anew.
func Read(from io.Reader) (*Report, error) { panic("not written") }

// Summary writes what a terminal shows: the sentences of each scenario, the trade-off table, what was broken.
func (r *Report) Summary(w io.Writer) error { panic("not written") }

// Broken lists the limits that were not kept, a sentence each, with scenario and mode. Empty: the comparison succeeded.
func (r *Report) Broken() []string { panic("not written") }
