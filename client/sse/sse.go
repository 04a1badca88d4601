// Package sse reads streams of server-sent events, as the registry's watch sends them
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Longest bounds a line and the data of an event, in bytes: a registration is at most 256 KiB, and may double when it
// is written as JSON.
const Longest = 1 << 20

// ErrLong ends a stream that is not one of ours.
var ErrLong = fmt.Errorf("an event is longer than %d bytes", Longest)

// Event has the lines before one empty line of a stream. Its texts belong to the reader, and are valid until the next
// call of Next.
type Event struct {
	Name    []byte // of the event; empty for a message
	Data    []byte // lines joined by line feeds
	ID      []byte // empty if the event carried none
	Comment []byte // the last one before the empty line; may be empty
}

// Reader reads a stream.
type Reader struct {
	lines   *bufio.Scanner
	started bool
	event   Event
}

// NewReader returns a reader that reads up to fetch bytes of a stream at once.
func NewReader(r io.Reader, fetch int) *Reader {
	s := &Reader{lines: bufio.NewScanner(r)}
	s.lines.Buffer(make([]byte, 0, fetch), Longest)
	s.lines.Split(new(lineSplitter).split)
	return s
}

// Next returns the next event that has data or an id. Lines after the last empty line are no event: the stream was
// cut in the middle. The error is io.EOF at the end of the stream.
func (s *Reader) Next() (Event, error) {
	e := &s.event
	e.reset()
	for s.lines.Scan() {
		line := s.line()
		if len(line) > 0 {
			e.addLine(line)
			if len(e.Data) > Longest {
				return Event{}, ErrLong
			}
			continue
		}
		if e.Data = bytes.TrimSuffix(e.Data, []byte("\n")); len(e.Data) > 0 || len(e.ID) > 0 {
			return *e, nil
		}
		e.reset()
	}
	switch err := s.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return Event{}, ErrLong
	case err != nil:
		return Event{}, err
	}
	return Event{}, io.EOF
}

// line returns the current line, without the byte order mark that the first one may have.
func (s *Reader) line() []byte {
	line := s.lines.Bytes()
	if !s.started {
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	s.started = true
	return line
}

func (e *Event) reset() {
	e.Name, e.Data, e.ID, e.Comment = e.Name[:0], e.Data[:0], e.ID[:0], e.Comment[:0]
}

// addLine adds a line that is not empty. One that begins with a colon is a comment. Unknown fields, and retry (a
// watch has its own pauses), mean nothing.
func (e *Event) addLine(line []byte) {
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "":
		e.Comment = append(e.Comment[:0], value...)
	case "event":
		e.Name = append(e.Name[:0], value...)
	case "data":
		e.Data = append(append(e.Data, value...), '\n')
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			e.ID = append(e.ID[:0], value...)
		}
	}
}

// lineSplitter splits at CR, LF and CR LF. A CR ends its line at once, whatever follows: an event must not wait for
// the next one.
type lineSplitter struct{ afterCR bool }

// split implements bufio.SplitFunc. It drops a rest without a line end.
func (l *lineSplitter) split(data []byte, _ bool) (advance int, token []byte, err error) {
	skip := 0
	if l.afterCR && len(data) > 0 && data[0] == '\n' {
		skip = 1
	}
	i := bytes.IndexAny(data[skip:], "\r\n")
	if i < 0 {
		return 0, nil, nil
	}
	end := skip + i
	l.afterCR = data[end] == '\r'
	return end + 1, data[skip:end], nil
}
