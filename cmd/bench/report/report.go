// Package report turns a comparison into what people read: a self-contained HTML page, a Markdown summary, CSV, JSON,
// and a summary for the terminal.
package report

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// Report is a comparison and what it means.
type Report struct {
	*trial.Comparison
	Verdicts []verdict.Verdict // of the trials, in their order
	dir      string            // where Write has put the files
}

// New judges every trial of a comparison.
func New(c *trial.Comparison) *Report {
	r := &Report{Comparison: c}
	for i := range c.Trials {
		t := &c.Trials[i]
		r.Verdicts = append(r.Verdicts, verdict.Judge(t, r.scenario(t.Scenario)))
	}
	return r
}

// The files of a report, in its directory.
const (
	HTMLFile     = "report.html"
	MarkdownFile = "report.md"
	JSONFile     = "report.json" // {"comparison": …, "verdicts": […]}
	CSVFile      = "report.csv"  // one row per trial, operation and 100 ms
)

// Write writes the four files into dir, which it makes if it is absent.
func (r *Report) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	// The raw figures first: should another file fail, nothing that was measured is lost.
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{{JSONFile, r.writeJSON}, {CSVFile, r.writeCSV}, {MarkdownFile, r.writeMarkdown}, {HTMLFile, r.writeHTML}} {
		if err := writeFile(filepath.Join(dir, file.name), file.write); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	r.dir = dir
	return nil
}

func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close() // again, if writing failed
	buffered := bufio.NewWriterSize(file, 1<<16)
	if err := write(buffered); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return file.Close()
}

// Broken lists the limits that were not kept, a sentence each, with scenario and mode. Empty: the comparison succeeded.
func (r *Report) Broken() []string {
	var sentences []string
	for i, t := range r.Trials {
		where := fmt.Sprintf("%s, %s", t.Scenario, t.Mode)
		if r.rounds(t.Scenario) > 1 {
			where += fmt.Sprintf(", round %d", t.Round)
		}
		if t.Failed != "" {
			sentences = append(sentences, fmt.Sprintf("%s: the trial could not be completed: %s", where, t.Failed))
			continue // the verdict says the same
		}
		for _, broken := range r.Verdicts[i].Broken {
			limit := strings.TrimPrefix(broken.Limit, string(t.Mode)+": ")
			if limit == verdict.Completed {
				sentences = append(sentences, fmt.Sprintf("%s: the trial could not be completed: %s", where, broken.Got))
				continue
			}
			sentences = append(sentences, fmt.Sprintf("%s: %s, but got %s", where, limit, broken.Got))
		}
	}
	return sentences
}

// scenario is one of the comparison's by its name; one that is not described has no limits.
func (r *Report) scenario(name string) scenario.Scenario {
	for _, s := range r.Scenarios {
		if s.Name == name {
			return s
		}
	}
	return scenario.Scenario{Name: name, Title: name}
}

// rounds counts how often a scenario ran in each mode.
func (r *Report) rounds(name string) int {
	last := 0
	for _, t := range r.Trials {
		if t.Scenario == name {
			last = max(last, t.Round)
		}
	}
	return last
}

// of lists the completed trials of a scenario in a mode, and their verdicts.
func (r *Report) of(name string, mode scenario.Mode) ([]*trial.Trial, []*verdict.Verdict) {
	var trials []*trial.Trial
	var verdicts []*verdict.Verdict
	for i := range r.Trials {
		if t := &r.Trials[i]; t.Scenario == name && t.Mode == mode && t.Failed == "" {
			trials, verdicts = append(trials, t), append(verdicts, &r.Verdicts[i])
		}
	}
	return trials, verdicts
}

// modes lists those that were compared, cp first.
func (r *Report) modes() []scenario.Mode {
	ran := map[scenario.Mode]bool{}
	for _, t := range r.Trials {
		ran[t.Mode] = true
	}
	var modes []scenario.Mode
	for _, mode := range []scenario.Mode{scenario.CP, scenario.AP} {
		if ran[mode] {
			modes = append(modes, mode)
		}
	}
	return modes
}

// ran lists the scenarios that have trials, in the comparison's order.
func (r *Report) ran() []scenario.Scenario {
	var ran []scenario.Scenario
	for _, s := range r.Scenarios {
		if r.rounds(s.Name) > 0 {
			ran = append(ran, s)
		}
	}
	return ran
}
