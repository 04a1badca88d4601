// Package report turns a comparison into what people read: a self-contained HTML page, a Markdown summary, CSV, JSON,
// and a summary for the terminal. It measures and judges nothing (package verdict). Its files:
//
//	report.go    a comparison with its verdicts, its JSON and its CSV file
//	page.go      the HTML page
//	plots.go     the data of the page's plots
//	text.go      the Markdown file, the summary for the terminal, and how numbers are written
//	tables.go    tables of figures, operations, trade-offs and costs
//	sentences.go sentences about what happened in a scenario
//	runs.go      the rounds of a scenario in one mode, and the clauses of sentences about them
package report

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// writeJSON writes trial after trial, a line each, so that the whole file is never held in memory and two of them can
// be compared line by line.
func (r *Report) writeJSON(w io.Writer) error {
	var failed error
	text := func(t string) {
		if failed == nil {
			_, failed = io.WriteString(w, t)
		}
	}
	value := func(name string, v any) {
		b, err := json.Marshal(v)
		failed = cmp.Or(failed, err)
		text(name + string(b))
	}
	list := func(name string, length int, element func(i int) any) {
		text(name + "[")
		for i, begin := 0, "\n"; i < length; i, begin = i+1, ",\n" {
			value(begin, element(i))
		}
		text("\n]")
	}
	value(`{"comparison":{"version":`, r.Version)
	value(`,"date":`, r.Date)
	value(",\n\"machine\":", r.Machine)
	value(",\n\"plan\":", r.Plan)
	list(",\n\"scenarios\":", len(r.Scenarios), func(i int) any { return r.Scenarios[i] })
	list(",\n\"trials\":", len(r.Trials), func(i int) any { return &r.Trials[i] })
	list("},\n\"verdicts\":", len(r.Verdicts), func(i int) any { return &r.Verdicts[i] })
	text("}\n")
	return failed
}

// Read reads a report's JSON file. Verdicts are computed anew.
func Read(from io.Reader) (*Report, error) {
	var file struct {
		Comparison *trial.Comparison `json:"comparison"`
	}
	if err := json.NewDecoder(from).Decode(&file); err != nil {
		return nil, fmt.Errorf("read a report: %w", err)
	}
	if file.Comparison == nil {
		return nil, errors.New("read a report: it has no comparison; was it written by rollcall-bench compare?")
	}
	return New(file.Comparison), nil
}

// csvHead names the columns: counts of calls that were due in the 100 ms from from_s on, over all nodes, and the
// latencies of the answered ones in ms; empty if there were none.
var csvHead = []string{"scenario", "mode", "round", "operation", "from_s", "due", "done", "not_found", "refused", "unreached", "unknown", "p50_ms", "p99_ms", "max_ms"}

func (r *Report) writeCSV(to io.Writer) error {
	rows := [][]string{csvHead}
	for i := range r.Trials {
		t := &r.Trials[i]
		for _, operation := range trial.Operations {
			bins := sumBins(t, func(s trial.Series) bool { return s.Operation == operation })
			for _, number := range slices.Sorted(maps.Keys(bins)) {
				b := bins[number]
				row := []string{t.Scenario, string(t.Mode), strconv.Itoa(t.Round), string(operation), strconv.FormatFloat(binBegin(number), 'f', 1, 64), strconv.Itoa(b.Due())}
				rows = append(rows, append(row, b.Columns(-1)...))
			}
		}
	}
	return csv.NewWriter(to).WriteAll(rows)
}
