// Package report turns a comparison into what people read: a self-contained HTML page, a Markdown summary, JSON, Go's
// benchmark format, and a summary for the terminal. It measures and judges nothing (package verdict). Its files:
//
//	report.go     a comparison with its verdicts, what is broken or not valid
//	file.go       its JSON file
//	columns.go    the columns, the trials of each that count, and cells with their ranges
//	figures.go    every figure of a trial that a table can show
//	tables.go     the chosen rows, the table of a scenario
//	text.go       the Markdown file, the summary for the terminal
//	page.go       the HTML page and the data of its plots
//	benchmarks.go the figures in Go's benchmark format
//	numbers.go    how numbers and names are written
package report

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/verdict"
)

// Report is a comparison with its verdicts.
type Report struct {
	*trial.Comparison
	Verdicts []verdict.Verdict // of the trials, in their order
	dir      string            // directory that Write has put the files into
}

// New judges every trial of a comparison.
func New(c *trial.Comparison) *Report {
	r := &Report{Comparison: c}
	scenario.Pair(c.Scenarios) // older files name no twins
	for i := range c.Trials {
		t := &c.Trials[i]
		r.Verdicts = append(r.Verdicts, verdict.Judge(t, c.Column(t.Column), r.scenario(t.Scenario)))
	}
	return r
}

// The files of a report, in its directory.
const (
	HTMLFile      = "report.html"
	MarkdownFile  = "report.md"
	JSONFile      = "report.json" // {"comparison": …, "verdicts": […]}
	BenchmarkFile = "report.txt"  // the figures of each trial in Go's benchmark format
)

// file is one file of a report.
type file struct {
	name  string
	write func(io.Writer) error
}

// files returns the files of a report, the raw one first: if another one fails, no measurement is lost.
func (r *Report) files() []file {
	return []file{{JSONFile, r.writeJSON}, {MarkdownFile, r.writeMarkdown}, {HTMLFile, r.writeHTML}, {BenchmarkFile, r.writeBenchmarks}}
}

// Write writes the four files into dir, and makes dir if it is missing.
func (r *Report) Write(dir string) error { return r.write(dir, r.files()) }

// WriteAgain writes the files into the directory of the report's own JSON file, which stays unchanged.
func (r *Report) WriteAgain(dir string) error { return r.write(dir, r.files()[1:]) }

func (r *Report) write(dir string, files []file) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	for _, f := range files {
		if err := writeFile(filepath.Join(dir, f.name), f.write); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	r.dir = dir
	return r.drawHistories(dir)
}

// drawHistories draws the first history of each trial that no single copy explains.
func (r *Report) drawHistories(dir string) error {
	for i := range r.Trials {
		violated := r.Verdicts[i].History.Violated
		if len(violated) == 0 {
			continue
		}
		draw := func(w io.Writer) error { return verdict.Draw(&r.Trials[i], violated[0], w) }
		if err := writeFile(filepath.Join(dir, historyFile(i)), draw); err != nil {
			return fmt.Errorf("draw a history: %w", err)
		}
	}
	return nil
}

// historyFile returns the name of a trial's drawing, by its place in the report.
func historyFile(number int) string { return fmt.Sprintf("history-%d.html", number+1) }

// writeFile replaces a file as a whole, or leaves the old one unchanged.
func writeFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			file.Close() // a second close unless writing failed
			os.Remove(file.Name())
		}
	}()
	buffered := bufio.NewWriterSize(file, 1<<16)
	if err := write(buffered); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := errors.Join(buffered.Flush(), file.Chmod(0o644), file.Sync()); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// Broken lists the limits that were not kept, a sentence each, with scenario and column; empty if all were kept. It
// includes those of invalid trials: a loss is a loss, however busy the machine was.
func (r *Report) Broken() []string {
	var sentences []string
	for i := range r.Trials {
		t := &r.Trials[i]
		for _, broken := range r.Verdicts[i].Broken {
			limit := strings.TrimPrefix(broken.Limit, t.Column+": ")
			if limit == verdict.Completed {
				sentences = append(sentences, fmt.Sprintf("%s: the trial could not be completed: %s", r.where(t), broken.Got))
				continue
			}
			sentence := fmt.Sprintf("%s: %s, but got %s", r.where(t), limit, broken.Got)
			if limit == verdict.Linearizable && len(r.Verdicts[i].History.Violated) > 0 {
				sentence += " (" + historyFile(i) + ")"
			}
			sentences = append(sentences, sentence)
		}
	}
	return sentences
}

// Invalid says why the comparison is not valid, a sentence each: the trials that measured the machine and not the
// servers, and what was not measured at all; empty if it is valid. Loads of heartbeats alone are raised beyond what
// some machines carry: an invalid trial of these is left out, and makes nothing else invalid.
func (r *Report) Invalid() []string {
	var sentences []string
	for i := range r.Trials {
		if why := r.Verdicts[i].Invalid; len(why) > 0 && !r.scenario(r.Trials[i].Scenario).HeartbeatsOnly() {
			sentences = append(sentences, fmt.Sprintf("%s: %s", r.where(&r.Trials[i]), strings.Join(why, "; ")))
		}
	}
	return append(sentences, r.unmeasured()...)
}

// unmeasured says that no trial counts, or that none was completed for a column that promises nothing (for others that
// is a broken limit), and how many planned ones are missing; empty if nothing is missing.
func (r *Report) unmeasured() []string {
	var sentences []string
	switch {
	case len(r.Trials) == 0:
		sentences = append(sentences, "no trial was run")
	case r.counting() == 0:
		sentences = append(sentences, "no trial counts: none was completed on a machine that carried it")
	}
	for _, c := range r.columns() {
		of := func(t trial.Trial) bool { return t.Column == c.Name }
		completed := func(t trial.Trial) bool { return of(t) && t.Failed == "" }
		if !c.Promises() && slices.ContainsFunc(r.Trials, of) && !slices.ContainsFunc(r.Trials, completed) {
			sentences = append(sentences, fmt.Sprintf("no trial of %s was completed", c.Heading()))
		}
	}
	if missing, planned := r.missing(); missing > 0 {
		sentences = append(sentences, fmt.Sprintf("%d of %s were run", planned-missing, amount(float64(planned), "planned trial")))
	}
	return sentences
}

// counting returns how many trials count: those that were completed and are valid.
func (r *Report) counting() int {
	count := 0
	for i := range r.Trials {
		if r.left(i) == "" {
			count++
		}
	}
	return count
}

// left says why a trial does not count, or returns "" if it does.
func (r *Report) left(number int) string {
	t := &r.Trials[number]
	switch {
	case t.Failed != "":
		return "not completed"
	case len(r.Verdicts[number].Invalid) == 0:
		return ""
	case r.scenario(t.Scenario).HeartbeatsOnly():
		return "not carried by this machine"
	}
	return "not valid"
}

// missing returns how many trials the plan has, and how many of them are missing. Columns left out because their
// clusters could not be started (compare.Run says so), and trials excluded by --only, are not planned.
func (r *Report) missing() (missing, planned int) {
	type key struct {
		scenario, column string
		round            int
	}
	run := make(map[key]bool)
	for _, t := range r.Trials {
		run[key{t.Scenario, t.Column, t.Round}] = true
	}
	for _, c := range r.Plan.Columns {
		left := "Column " + c.Heading() + " was left out: "
		if slices.ContainsFunc(r.Plan.LeftOut, func(sentence string) bool { return strings.HasPrefix(sentence, left) }) {
			continue
		}
		for _, s := range r.Scenarios {
			if !r.Plan.Wants(s.Name, c.Name) {
				continue
			}
			for round := range c.RoundsOf(s, r.Plan.Rounds) {
				planned++
				if !run[key{s.Name, c.Name, round + 1}] {
					missing++
				}
			}
		}
	}
	return missing, planned
}

// where names a trial, for sentences.
func (r *Report) where(t *trial.Trial) string {
	where := fmt.Sprintf("%s, %s", t.Scenario, t.Column)
	if r.rounds(t.Scenario) > 1 {
		where += fmt.Sprintf(", round %d", t.Round)
	}
	return where
}

// scenario returns one of the comparison's scenarios by name; an undescribed one has no limits.
func (r *Report) scenario(name string) scenario.Scenario {
	for _, s := range r.Scenarios {
		if s.Name == name {
			return s
		}
	}
	return scenario.Scenario{Name: name, Title: name}
}

// rounds returns how often a scenario ran, in the column where it ran most often.
func (r *Report) rounds(name string) int {
	last := 0
	for _, t := range r.Trials {
		if t.Scenario == name {
			last = max(last, t.Round)
		}
	}
	return last
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
