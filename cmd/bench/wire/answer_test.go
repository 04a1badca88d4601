package wire

import (
	"errors"
	"strings"
	"testing"
)

func TestAnswersAreReadInAnyPieces(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		status     int
		body       string
	}{
		{name: "empty 200", text: "HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 0\r\n\r\n", status: 200},
		{name: "204 without a length", text: "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n", status: 204},
		{name: "body", text: "HTTP/1.1 200 OK\r\nContent-Length: 11\r\nX-A: b\r\n\r\nhello\r\n\r\nyo", status: 200, body: "hello\r\n\r\nyo"},
		{name: "header name in lower case", text: "HTTP/1.1 503 Unavailable\r\ncontent-length:3\r\n\r\nwhy", status: 503, body: "why"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var a answerReader
			for cut := range len(tc.text) {
				a.reset(true)
				whole, err := a.feed([]byte(tc.text[:cut]))
				if whole || err != nil {
					t.Fatalf("after %d of %d bytes: whole %t, %v", cut, len(tc.text), whole, err)
				}
				whole, err = a.feed([]byte(tc.text[cut:]))
				if !whole || err != nil || a.status != tc.status || string(a.text) != tc.body || a.body != int64(len(tc.body)) {
					t.Fatalf("cut at %d: whole %t, status %d, body of %d bytes %q, %v, want status %d and %q", cut, whole, a.status, a.body, a.text, err, tc.status, tc.body)
				}
			}
		})
	}
}

func TestAnswersThatCannotBeReadAreErrors(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       error // nil: any
	}{
		{name: "HTTP/1.0", text: "HTTP/1.0 200 OK\r\n\r\n", want: errNotHTTP},
		{name: "no number", text: "HTTP/1.1 abc\r\n\r\n", want: errNotHTTP},
		{name: "endless header", text: strings.Repeat("x", maxHead+1), want: errNotHTTP},
		{name: "chunked", text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", want: errNoLength},
		{name: "length in words", text: "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n"},
		{name: "negative length", text: "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n"},
		{name: "more than the length", text: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", want: errSurplus},
		{name: "body behind a 204", text: "HTTP/1.1 204 No Content\r\n\r\nabc", want: errSurplus},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var a answerReader
			a.reset(true)
			whole, err := a.feed([]byte(tc.text))
			if whole || err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("whole %t, %v, want %v", whole, err, tc.want)
			}
		})
	}
}
