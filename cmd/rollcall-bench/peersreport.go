package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// fault says why a row does not count, or returns "" if it does.
func (row *peerRow) fault(rounds int) string {
	switch {
	case len(row.Wrong) > 0:
		return "invalid: " + row.Wrong.String()
	case len(row.Samples) < rounds:
		return fmt.Sprintf("not measured: %d of %d rounds", len(row.Samples), rounds)
	case slices.ContainsFunc(row.Samples, func(s peerSample) bool { return s.Rate == 0 || s.Bare == 0 }):
		return "invalid: nothing was answered in time"
	}
	return ""
}

// of returns the spread of something over the rounds.
func (row *peerRow) of(value func(peerSample) float64) string {
	var values []float64
	for _, s := range row.Samples {
		values = append(values, value(s))
	}
	return spreadOf(values).text("")
}

// peersReport is the result of a run.
type peersReport struct {
	Version string
	Date    string // of the run's start
	Machine trial.Machine
	*peersRun
}

// Table implements cli.Tabler.
func (r *peersReport) Table() [][]string {
	cells := [][]string{{"OPERATION", "SYSTEM", "CALL", "/S", "BARE /S", "OF BARE", "P50 MS", "P99 MS", "SERVERS' CPU µS", "MB/S", "WHEN IT ANSWERS"}}
	for _, operation := range peerOperations {
		for _, row := range r.rows {
			if row.Operation != operation {
				continue
			}
			measured := []string{row.fault(r.rounds), "", "", "", "", "", ""}
			if measured[0] == "" {
				measured = row.cells()
			}
			cells = append(cells, slices.Concat([]string{operation, row.System, row.Call}, measured, []string{row.Promise}))
		}
	}
	return cells
}

// cells returns the figures of a row that counts.
func (row *peerRow) cells() []string {
	bytes := ""
	if row.Operation == listing {
		bytes = row.of(func(s peerSample) float64 { return s.Rate * float64(s.Bytes) / 1e6 })
	}
	return []string{
		row.of(func(s peerSample) float64 { return s.Rate }), row.of(func(s peerSample) float64 { return s.Bare }),
		row.of(func(s peerSample) float64 { return s.Rate / s.Bare }),
		row.of(func(s peerSample) float64 { return s.P50 }), row.of(func(s peerSample) float64 { return s.P99 }),
		row.of(func(s peerSample) float64 { return s.CPU }), bytes,
	}
}

// quiet is the share of the processors that others may take.
const quiet = 0.1

// remarks returns the sentences below the table.
func (r *peersReport) remarks() []string {
	remarks := slices.Clone(r.notes)
	if len(r.versions) > 0 {
		remarks = append(remarks, "Versions: "+strings.Join(slices.Sorted(maps.Values(r.versions)), ", ")+".")
	}
	for _, name := range slices.Sorted(maps.Keys(r.lacks)) {
		remarks = append(remarks, fmt.Sprintf("%s was not measured: %s", name, r.lacks[name]))
	}
	if len(r.others) > 0 {
		s := spreadOf(r.others)
		remarks = append(remarks, fmt.Sprintf("Other programs and the kernel took %.0f %% of the processors (median; at most %.0f %%).", 100*s.Median, 100*s.Max))
	}
	if r.disturbed() {
		remarks = append(remarks, "These figures decide nothing: "+notQuiet+".")
	}
	return remarks
}

const notQuiet = "the machine was not quiet: repeat the run when it is"

// disturbed reports whether other programs took so much of the processors that the figures decide nothing.
func (r *peersReport) disturbed() bool { return len(r.others) > 0 && spreadOf(r.others).Median > quiet }

func (r *peersReport) plan() string {
	rounds := fmt.Sprintf("%d rounds", r.rounds)
	if r.rounds == 1 {
		rounds = "one round"
	}
	return fmt.Sprintf("%s of %v for each figure; %s instances", rounds, r.window, shortNumber(float64(r.instances)))
}

// markdown returns the report as a part of a page: the table, and the remarks below it.
func (r *peersReport) markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "rollcall %s, %s; %s.\n\n%s.\n\n", r.Version, r.Date, r.plan(), r.Machine)
	for i, row := range r.Table() {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|%s\n", strings.Repeat(" --- |", len(row)))
		}
	}
	for _, remark := range r.remarks() {
		fmt.Fprintf(&b, "\n%s\n", remark)
	}
	return b.Bytes()
}

// MarshalJSON implements json.Marshaler.
func (r *peersReport) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{
		"version": r.Version, "date": r.Date, "machine": r.Machine, "plan": r.plan(), "rows": r.rows,
		"remarks": r.remarks(),
	})
}

// write puts the report into a file, as JSON or Markdown by the file's extension.
func (r *peersReport) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if text = append(text, '\n'); filepath.Ext(path) == ".md" {
		text, err = inPage(path, r.markdown())
	}
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

// The lines that enclose the newest report in a page; the prose around them stays.
const (
	reportBegin = "<!-- rollcall-bench peers: begin -->\n"
	reportEnd   = "<!-- rollcall-bench peers: end -->\n"
)

// inPage replaces the report in a page, or begins one.
func inPage(path string, report []byte) ([]byte, error) {
	begin, end := []byte(reportBegin), []byte(reportEnd)
	page, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		page, err = slices.Concat(begin, end), nil
	}
	if err != nil {
		return nil, err
	}
	before, rest, begins := bytes.Cut(page, begin)
	_, after, ends := bytes.Cut(rest, end)
	if !begins || !ends {
		return nil, fmt.Errorf("%s has no lines %q and %q to put the report between", path, bytes.TrimSpace(begin), bytes.TrimSpace(end))
	}
	return slices.Concat(before, begin, report, end, after), nil
}

// spread is the median and the ends of some values.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf needs at least one value. The median of an even number is the mean of the middle two.
func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + median) / 2
	}
	return spread{median, sorted[0], sorted[len(sorted)-1]}
}

// text formats a spread with its unit.
func (s spread) text(unit string) string {
	text := shortNumber(s.Median)
	if s.Min != s.Max {
		text += " (" + shortNumber(s.Min) + "–" + shortNumber(s.Max) + ")"
	}
	return strings.TrimSpace(text + " " + unit)
}

// shortNumber keeps about three digits, and marks thousands by a comma.
func shortNumber(v float64) string {
	switch {
	case v >= 1000:
		whole := fmt.Sprintf("%.0f", v)
		for at := len(whole) - 3; at > 0; at -= 3 {
			whole = whole[:at] + "," + whole[at:]
		}
		return whole
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
