package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// writeJSON writes trial after trial, a line each, so that the whole file is never held in memory and two of them can
// be compared line by line.
func (r *Report) writeJSON(w io.Writer) error {
	s := &jsonStream{to: w}
	s.text(`{"comparison":{"version":`).value(r.Version)
	s.text(`,"date":`).value(r.Date)
	s.text(",\n\"machine\":").value(r.Machine)
	s.text(",\n\"plan\":").value(r.Plan)
	s.text(",\n\"scenarios\":").list(len(r.Scenarios), func(i int) any { return r.Scenarios[i] })
	s.text(",\n\"trials\":").list(len(r.Trials), func(i int) any { return &r.Trials[i] })
	s.text("},\n\"verdicts\":").list(len(r.Verdicts), func(i int) any { return &r.Verdicts[i] })
	s.text("}\n")
	return s.err
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

// jsonStream writes parts of a JSON document one after the other. Its first error sticks.
type jsonStream struct {
	to  io.Writer
	err error
}

func (s *jsonStream) text(t string) *jsonStream {
	if s.err == nil {
		_, s.err = io.WriteString(s.to, t)
	}
	return s
}

func (s *jsonStream) value(v any) *jsonStream {
	if s.err != nil {
		return s
	}
	text, err := json.Marshal(v)
	if err != nil {
		s.err = err
		return s
	}
	return s.text(string(text))
}

// list writes an array with a line for each element.
func (s *jsonStream) list(length int, element func(i int) any) {
	s.text("[")
	for i := range length {
		if i > 0 {
			s.text(",")
		}
		s.text("\n").value(element(i))
	}
	s.text("\n]")
}
