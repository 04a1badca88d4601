package report

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

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

// Read reads a report's JSON file, compressed by gzip or not. Verdicts are computed anew.
func Read(from io.Reader) (*Report, error) {
	plain, err := unzipped(from)
	if err != nil {
		return nil, fmt.Errorf("read a report: %w", err)
	}
	var file struct {
		Comparison *trial.Comparison `json:"comparison"`
	}
	if err := json.NewDecoder(plain).Decode(&file); err != nil {
		return nil, fmt.Errorf("read a report: %w", err)
	}
	if file.Comparison == nil {
		return nil, errors.New("read a report: it has no comparison; was it written by rollcall-bench compare?")
	}
	if err := file.Comparison.Check(); err != nil {
		return nil, fmt.Errorf("read a report: %w", err)
	}
	return New(file.Comparison), nil
}

// Holds reports whether a report's JSON file is of the same run: of the same plan and machine, with the same trials.
func (r *Report) Holds(from io.Reader) (bool, error) {
	plain, err := unzipped(from)
	if err != nil {
		return false, err
	}
	var file struct{ Comparison runOf }
	if err := json.NewDecoder(plain).Decode(&file); err != nil {
		return false, err
	}
	own := runOf{Version: r.Version, Date: r.Date, Machine: r.Machine, Plan: r.Plan}
	for _, t := range r.Trials {
		own.Trials = append(own.Trials, trialOf{t.Scenario, t.Column, t.Round, t.Took})
	}
	want, err := json.Marshal(own)
	if err != nil {
		return false, err
	}
	got, err := json.Marshal(file.Comparison)
	return bytes.Equal(want, got), err
}

// runOf is what tells a run from others.
type runOf struct {
	Version string        `json:"version"`
	Date    string        `json:"date"`
	Machine trial.Machine `json:"machine"`
	Plan    trial.Plan    `json:"plan"`
	Trials  []trialOf     `json:"trials"`
}

type trialOf struct {
	Scenario string       `json:"scenario"`
	Column   string       `json:"column"`
	Round    int          `json:"round"`
	Took     trial.Micros `json:"took_us"`
}

// unzipped is what a reader reads, uncompressed if it begins as gzip does.
func unzipped(from io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(from, 1<<16)
	if magic, err := buffered.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		return gzip.NewReader(buffered)
	}
	return buffered, nil
}
