package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// longestEvent bounds a line and the data of an event, in bytes: a registration is at most 256 KiB, and may double when
// it is written as JSON.
const longestEvent = 1 << 20

// errLongEvent ends a stream that is not one of ours.
var errLongEvent = fmt.Errorf("an event is longer than %d bytes", longestEvent)

// StreamEvent has the lines before one empty line of a stream. Its texts belong to the reader, and are valid until the
// next call of Next.
type StreamEvent struct {
	Name    []byte // of the event; empty for a message
	Data    []byte // lines joined by line feeds
	ID      []byte // empty if the event carried none
	Comment []byte // the last one before the empty line; may be empty
}

// EventReader reads a stream of server-sent events, as the watch sends them
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
type EventReader struct {
	lines   *bufio.Scanner
	started bool
	event   StreamEvent
}

// NewEventReader returns a reader that reads up to fetch bytes of a stream at once.
func NewEventReader(r io.Reader, fetch int) *EventReader {
	s := &EventReader{lines: bufio.NewScanner(r)}
	s.lines.Buffer(make([]byte, 0, fetch), longestEvent)
	s.lines.Split(new(lineSplitter).split)
	return s
}

// Next returns the next event that has data or an id. Lines after the last empty line are no event: the stream was
// cut in the middle. The error is io.EOF at the end of the stream.
func (s *EventReader) Next() (StreamEvent, error) {
	e := &s.event
	e.reset()
	for s.lines.Scan() {
		line := s.line()
		if len(line) > 0 {
			e.addLine(line)
			if len(e.Data) > longestEvent {
				return StreamEvent{}, errLongEvent
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
		return StreamEvent{}, errLongEvent
	case err != nil:
		return StreamEvent{}, err
	}
	return StreamEvent{}, io.EOF
}

// line returns the current line, without the byte order mark that the first one may have.
func (s *EventReader) line() []byte {
	line := s.lines.Bytes()
	if !s.started {
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	s.started = true
	return line
}

func (e *StreamEvent) reset() {
	e.Name, e.Data, e.ID, e.Comment = e.Name[:0], e.Data[:0], e.ID[:0], e.Comment[:0]
}

// addLine adds a line that is not empty. One that begins with a colon is a comment. Unknown fields, and retry (a
// watch has its own pauses), mean nothing.
func (e *StreamEvent) addLine(line []byte) {
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
