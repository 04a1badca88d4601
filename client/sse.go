package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// longestSSE bounds a line and the data of an event, in bytes: a registration is 256 KiB at most,
// and may double when it is written as JSON.
const longestSSE = 1 << 20

// fetchSSE is how much of a stream is taken at once if there is as much, in bytes: what a server collects
// before it writes.
const fetchSSE = 32 << 10

// errLongSSE ends a stream that is not one of ours.
var errLongSSE = fmt.Errorf("an event is longer than %d bytes", longestSSE)

// sseEvent is what stood before one empty line of a stream.
type sseEvent struct {
	name    string // of the event; "": a message
	data    string // lines joined by line feeds
	id      string // "": the event carried none
	comment string // the last one before the line; "": there was none
}

// sseReader reads a stream of server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).
type sseReader struct {
	lines *bufio.Scanner
	begun bool
}

func newSSEReader(r io.Reader) *sseReader {
	s := &sseReader{lines: bufio.NewScanner(r)}
	s.lines.Buffer(make([]byte, 0, fetchSSE), longestSSE)
	s.lines.Split(new(lineSplitter).split)
	return s
}

// next returns the next event that has data or an id. What stands after the last empty line
// is no event: the stream was cut in the middle. The error is io.EOF at the end of the stream.
func (s *sseReader) next() (sseEvent, error) {
	var e sseEvent
	var data strings.Builder
	for s.lines.Scan() {
		line := s.line()
		if len(line) > 0 {
			e.take(line, &data)
			if data.Len() > longestSSE {
				return sseEvent{}, errLongSSE
			}
			continue
		}
		if e.data = strings.TrimSuffix(data.String(), "\n"); e.data != "" || e.id != "" {
			return e, nil
		}
		e = sseEvent{}
		data.Reset()
	}
	switch err := s.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return sseEvent{}, errLongSSE
	case err != nil:
		return sseEvent{}, err
	}
	return sseEvent{}, io.EOF
}

// line is the present line, without the byte order mark that the first one may have.
func (s *sseReader) line() []byte {
	line := s.lines.Bytes()
	if !s.begun {
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	s.begun = true
	return line
}

// take reads a line that is not empty. One that begins with a colon is a comment. Unknown fields, and
// retry (a Watch has its own pauses), mean nothing.
func (e *sseEvent) take(line []byte, data *strings.Builder) {
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "":
		e.comment = string(value)
	case "event":
		e.name = string(value)
	case "data":
		data.Write(value)
		data.WriteByte('\n')
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			e.id = string(value)
		}
	}
}

// lineSplitter splits at CR, LF and CR LF. A CR ends its line at once, whatever follows: an event
// must not wait for the next one.
type lineSplitter struct{ afterCR bool }

// split implements bufio.SplitFunc. What no line end follows is dropped.
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
