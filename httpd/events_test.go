package httpd_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
)

// event is a server-sent event as a browser understands it. One without a name and data is an id alone.
type event struct {
	name, id, comment string
	data              struct {
		Index, Action, Why, App, ID, Status, Reason string
		Instance                                    map[string]any
	}
	text string // of data
	at   time.Time
}

// events reads a stream of events.
type events struct {
	t     testing.TB
	in    *bufio.Reader
	start event
}

// documents are what the data of an event is, by its name. Servers write them by hand.
var documents = map[string]any{"start": &api.Start{}, "change": &api.Change{}, "reset": &api.Reset{}}

// strictly reads a document that has no member which package api does not declare.
func strictly(text string, into any) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

func newEvents(t testing.TB, body io.Reader) *events { return &events{t: t, in: bufio.NewReader(body)} }

// next reads an event; ok is false at the end of the stream.
func (s *events) next() (e event, ok bool) {
	s.t.Helper()
	for {
		line, err := s.in.ReadString('\n')
		if err == io.EOF && line == "" && e.name+e.id == "" {
			return e, false
		}
		if err != nil {
			s.t.Fatalf("the stream broke off after %+v: %v", e, err)
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "":
			if line == "" {
				e.at = time.Now()
				return e, true
			}
			e.comment = value
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			e.text = value
			if err := errors.Join(json.Unmarshal([]byte(value), &e.data), strictly(value, documents[e.name])); err != nil {
				s.t.Fatalf("%v in %q", err, value)
			}
		default:
			s.t.Fatalf("a line of an unknown kind: %q", line)
		}
	}
}

// want reads an event, which must have a name.
func (s *events) want(name string) event {
	s.t.Helper()
	e, ok := s.next()
	if !ok || e.name != name {
		s.t.Fatalf("got %+v, %v, want an event %q", e, ok, name)
	}
	return e
}
