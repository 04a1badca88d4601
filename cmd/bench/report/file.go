package report

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// head returns the start of the JSON file: what distinguishes one run from others.
func (r *Report) head() ([]byte, error) {
	var b bytes.Buffer
	for _, part := range []struct {
		name  string
		value any
	}{{`{"comparison":{"version":`, r.Version}, {`,"date":`, r.Date}, {",\n\"machine\":", r.Machine}, {",\n\"plan\":", r.Plan}} {
		text, err := json.Marshal(part.value)
		if err != nil {
			return nil, err
		}
		b.WriteString(part.name)
		b.Write(text)
	}
	return b.Bytes(), nil
}

// writeJSON writes the trials one by one, a line each, so that the whole file is never in memory and two files can be
// compared line by line.
func (r *Report) writeJSON(w io.Writer) error {
	head, err := r.head()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w) // its first error stays until Flush
	out.Write(head)
	for _, list := range []struct {
		name    string
		length  int
		element func(i int) any
	}{
		{",\n\"scenarios\":", len(r.Scenarios), func(i int) any { return r.Scenarios[i] }},
		{",\n\"trials\":", len(r.Trials), func(i int) any { return &r.Trials[i] }},
		{"},\n\"verdicts\":", len(r.Verdicts), func(i int) any { return &r.Verdicts[i] }},
	} {
		out.WriteString(list.name + "[")
		for i := range list.length {
			text, err := json.Marshal(list.element(i))
			if err != nil {
				return err
			}
			if i > 0 {
				out.WriteByte(',')
			}
			out.WriteByte('\n')
			out.Write(text)
		}
		out.WriteString("\n]")
	}
	out.WriteString("}\n")
	return out.Flush()
}

// Read reads a report's JSON file, compressed by gzip or not. Verdicts are computed again.
func Read(from io.Reader) (*Report, error) {
	plain := bufio.NewReaderSize(from, 1<<16)
	if magic, err := plain.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(plain)
		if err != nil {
			return nil, fmt.Errorf("read a report: %w", err)
		}
		plain = bufio.NewReader(unzipped)
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

// Holds reports whether a report's JSON file, as Write writes it, is of the same run.
func (r *Report) Holds(from io.Reader) (bool, error) {
	want, err := r.head()
	if err != nil {
		return false, err
	}
	got := make([]byte, len(want))
	_, err = io.ReadFull(from, got)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	return bytes.Equal(got, want), err
}
