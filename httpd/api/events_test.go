package api

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// texts is an event that stays valid.
type texts struct{ name, data, id, comment string }

func readSSE(r io.Reader) (events []texts, err error) {
	s := NewEventReader(r, 4096)
	for {
		e, err := s.Next()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, texts{string(e.Name), string(e.Data), string(e.ID), string(e.Comment)})
	}
}

func TestReaderReadsStreamsAsTheStandardSays(t *testing.T) {
	for _, tc := range []struct {
		name, stream string
		want         []texts
	}{
		{name: "nothing"},
		{name: "an event", stream: "event: change\nid: a-1\ndata: {}\n\n", want: []texts{{name: "change", id: "a-1", data: "{}"}}},
		{name: "two events", stream: "data: 1\n\nevent: x\ndata: 2\n\n", want: []texts{{data: "1"}, {name: "x", data: "2"}}},
		{name: "an id alone", stream: "id: a-1\n: still here\n\n", want: []texts{{id: "a-1", comment: "still here"}}},
		{name: "a comment alone", stream: ": still here\n\n"},
		{name: "a name alone names nothing after it", stream: "event: x\n\ndata: 1\n\n", want: []texts{{data: "1"}}},
		{name: "many lines of data", stream: "data: a\ndata: b\n\n", want: []texts{{data: "a\nb"}}},
		{name: "no space, and more than one", stream: "data:a\ndata:  b\n\n", want: []texts{{data: "a\n b"}}},
		{name: "a colon in the value", stream: "data: a:b\n\n", want: []texts{{data: "a:b"}}},
		{name: "a field without a colon", stream: "data\ndata: a\n\n", want: []texts{{data: "\na"}}},
		{name: "unknown fields", stream: "retry: 10\nfoo: bar\ndata: a\n\n", want: []texts{{data: "a"}}},
		{name: "an id with a null is none", stream: "id: a\x00b\ndata: a\n\n", want: []texts{{data: "a"}}},
		{name: "CR LF", stream: "event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n", want: []texts{{name: "x", data: "a"}, {data: "b"}}},
		{name: "CR", stream: "event: x\rdata: a\r\rdata: b\r\r", want: []texts{{name: "x", data: "a"}, {data: "b"}}},
		{name: "a byte order mark", stream: "\ufeffdata: a\n\n", want: []texts{{data: "a"}}},
		{name: "cut before the empty line", stream: "data: a\n\ndata: b\n", want: []texts{{data: "a"}}},
		{name: "cut in a line", stream: "data: a\n\ndata: b", want: []texts{{data: "a"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := readSSE(strings.NewReader(tc.stream))
			expect.That(t, err == nil && reflect.DeepEqual(got, tc.want), "got %q, %v, want %q", got, err, tc.want)
		})
	}
}

func TestReaderBoundsEvents(t *testing.T) {
	for name, stream := range map[string]string{
		"a line without end":  "data: " + strings.Repeat("x", longestEvent),
		"data of many lines":  strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", longestEvent/1000+1),
		"a comment for ever ": ":" + strings.Repeat(" ", longestEvent+1),
	} {
		expect.ErrorIs(t, expect.Err(readSSE(strings.NewReader(stream))), errLongEvent, "%s:", name)
	}
}

func TestReaderReturnsAnEventAsSoonAsItsEmptyLineIsRead(t *testing.T) {
	for name, newline := range map[string]string{"LF": "\n", "CR LF": "\r\n", "CR": "\r"} {
		t.Run(name, func(t *testing.T) {
			r, w := io.Pipe()
			defer w.Close()
			go io.WriteString(w, "data: a"+newline+newline) // and the stream stays open
			e, err := NewEventReader(r, 4096).Next()
			expect.That(t, err == nil && string(e.Data) == "a", "got %q, %v", e, err)
		})
	}
}

func FuzzSSE(f *testing.F) {
	for _, seed := range []string{"", "data: a\n\n", "event: x\r\nid: 1\r\n\r\n", ":\r\r\ndata\rdata\r\r\n", "\ufeffid: \x00\n\n", "data: a\n\ndata: b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		whole, err := readSSE(strings.NewReader(stream))
		pieces, err2 := readSSE(iotest.OneByteReader(strings.NewReader(stream)))
		expect.That(t, reflect.DeepEqual(whole, pieces) && (err == nil) == (err2 == nil),
			"%q is %q, %v at once, and %q, %v byte by byte", stream, whole, err, pieces, err2)
		for _, e := range whole {
			expect.That(t, !strings.ContainsAny(e.name+e.id, "\r\n") && !strings.Contains(e.data, "\r"), "%q has %q, with a line end", stream, e)
		}
	})
}
