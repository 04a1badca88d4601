package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// report is all that a run has to say.
type report struct {
	Version string
	Date    string // of the run's begin
	Machine machine
	Plan    ratiosPlan
	Rows    []rowResult
	*figures
}

// table shows rows and figures, for output.print.
func (r *report) Table() [][]string {
	return append(append(r.rowCells(), nil), r.figureCells()...)
}

func (r *report) rowCells() [][]string {
	cells := [][]string{{"RATIO", "FLOOR", "GOAL", "MEDIAN (MIN–MAX)", "VERDICT"}}
	for _, row := range r.Rows {
		cells = append(cells, []string{row.name, row.limit(row.floor), row.limit(row.goal), row.spread.text(row.unit), string(row.verdict)})
	}
	return cells
}

// limit shows a floor or goal as what the value must be.
func (r rowResult) limit(v float64) string {
	if v == 0 {
		return ""
	}
	sign := "≥ "
	if r.lower {
		sign = "≤ "
	}
	return sign + strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
}

func (r *report) figureCells() [][]string {
	cells := [][]string{{"FIGURE", "MEDIAN (MIN–MAX)"}}
	for _, f := range r.list {
		cells = append(cells, []string{string(f.Name), spreadOf(f.Values).text(f.Unit)})
	}
	return cells
}

// missed names the rows below their floor.
func (r *report) missed() []string {
	var names []string
	for _, row := range r.Rows {
		if row.verdict == missed {
			names = append(names, row.name)
		}
	}
	return names
}

// remarks are sentences that belong below the tables.
func (r *report) remarks() []string {
	remarks := r.notes
	if len(r.wrong) > 0 {
		remarks = append(remarks, "Wrong answers: "+r.wrong.String()+".")
	}
	if reason := r.Plan.uncounted(r.Machine); reason != "" {
		remarks = append(remarks, "Floors do not count here: "+reason+".")
	}
	return remarks
}

// markdown is the report as a part of a page.
func (r *report) markdown() []byte {
	var b bytes.Buffer
	m := r.Machine
	fmt.Fprintf(&b, "rollcall %s, %s; %s.\n\n", r.Version, r.Date, r.Plan)
	fmt.Fprintf(&b, "Machine: %s, %d cores, %s of memory; %s, %s; %s; %s.\n", m.CPU, m.Cores, m.Memory, m.Disk, m.Sync, m.Kernel, m.Go)
	for _, cells := range [][][]string{r.rowCells(), r.figureCells()} {
		b.WriteByte('\n')
		for i, row := range cells {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				fmt.Fprintf(&b, "|%s\n", strings.Repeat(" --- |", len(row)))
			}
		}
	}
	for _, remark := range r.remarks() {
		fmt.Fprintf(&b, "\n%s\n", remark)
	}
	return b.Bytes()
}

// MarshalJSON implements json.Marshaler.
func (r *report) MarshalJSON() ([]byte, error) {
	type jsonRow struct {
		Name    string    `json:"name"`
		Of      string    `json:"of"`
		Over    string    `json:"over,omitempty"`
		Unit    string    `json:"unit"`
		Floor   float64   `json:"floor,omitempty"`
		Goal    float64   `json:"goal,omitempty"`
		Lower   bool      `json:"lower_is_better"`
		Values  []float64 `json:"values"`
		Spread  spread    `json:"spread"`
		Verdict verdict   `json:"verdict"`
	}
	list := make([]jsonRow, len(r.Rows))
	for i, row := range r.Rows {
		list[i] = jsonRow{row.name, string(row.of), string(row.over), row.unit, row.floor, row.goal, row.lower, row.values, row.spread, row.verdict}
	}
	return json.Marshal(map[string]any{
		"version": r.Version, "date": r.Date, "machine": r.Machine, "plan": r.Plan.String(),
		"rows": list, "figures": r.list, "wrong": r.wrong, "remarks": r.remarks(),
	})
}

// write puts the report into a file, as JSON or Markdown by the file's extension.
func (r *report) write(path string) error {
	if filepath.Ext(path) == ".md" {
		return r.writeMarkdown(path)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return writeReport(path, append(text, '\n'))
}

// Marks between which a page holds the newest report; the prose around them stays.
const (
	reportBegin = "<!-- rollcall-bench ratios: begin -->\n"
	reportEnd   = "<!-- rollcall-bench ratios: end -->\n"
)

// writeMarkdown replaces the report in a page, or begins one.
func (r *report) writeMarkdown(path string) error {
	page, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		page, err = []byte(reportBegin+reportEnd), nil
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	before, rest, begins := bytes.Cut(page, []byte(reportBegin))
	_, after, ends := bytes.Cut(rest, []byte(reportEnd))
	if !begins || !ends {
		return fmt.Errorf("--out: %s has no lines %q and %q to put the report between", path, strings.TrimSpace(reportBegin), strings.TrimSpace(reportEnd))
	}
	return writeReport(path, bytes.Join([][]byte{before, []byte(reportBegin), r.markdown(), []byte(reportEnd), after}, nil))
}

func writeReport(path string, text []byte) error {
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}
