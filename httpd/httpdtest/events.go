package httpdtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// event is a server-sent event as a browser understands it. One without a name and data only carries an id.
type event struct {
	Name, Id, Comment string
	Data              struct {
		Index, Action, Why, App, ID, Status, Reason string
		Instance                                    map[string]any
	}
	Text string // of data
	At   time.Time
}

// events reads a stream of events.
type events struct {
	t     testing.TB
	in    *bufio.Reader
	Start event
}

// documents are the types of the events' data, by name. Servers write them by hand.
var documents = map[string]any{"start": &api.Start{}, "change": &api.Change{}, "reset": &api.Reset{}}

// Strictly reads a document that may only have members declared by package api.
func Strictly(text string, into any) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// NewEvents returns a reader of a body's events.
func NewEvents(t testing.TB, body io.Reader) *events { return &events{t: t, in: bufio.NewReader(body)} }

// Next reads an event; ok is false at the end of the stream.
func (s *events) Next() (e event, ok bool) {
	s.t.Helper()
	for {
		line, err := s.in.ReadString('\n')
		if err == io.EOF && line == "" && e.Name+e.Id == "" {
			return e, false
		}
		need.OKf(s.t, err, "the stream broke off after %+v", e)
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "":
			if line == "" {
				e.At = time.Now()
				return e, true
			}
			e.Comment = value
		case "event":
			e.Name = value
		case "id":
			e.Id = value
		case "data":
			e.Text = value
			if err := errors.Join(json.Unmarshal([]byte(value), &e.Data), Strictly(value, documents[e.Name])); err != nil {
				s.t.Fatalf("%v in %q", err, value)
			}
		default:
			s.t.Fatalf("a line of an unknown kind: %q", line)
		}
	}
}

// Want reads an event, which must have a name.
func (s *events) Want(name string) event {
	s.t.Helper()
	e, ok := s.Next()
	need.That(s.t, ok && e.Name == name, "got %+v, %v, want an event %q", e, ok, name)
	return e
}
