package load

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func serve(t *testing.T, handler http.HandlerFunc) *Conn {
	t.Helper()
	c := need.Got(Dial(addrOf(standIn(t, handler)), time.Now().Add(time.Minute)))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestConnKeepsBodiesOnlyIfAskedTo(t *testing.T) {
	long := strings.Repeat("long ", 50_000) // more than one read, and more than one chunk
	for _, chunked := range []bool{false, true} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if !chunked {
				w.Header().Set("Content-Length", "250000")
			}
			io.WriteString(w, long)
		})
		for _, keep := range []bool{false, true, false, true} {
			c.KeepBody = keep
			status, err := c.Exchange(readRequest)
			need.That(t, err == nil && status == http.StatusOK && c.Size() == int64(len(long)) && c.response.chunked == chunked,
				"status %d, %d bytes, %v, want 200 and %d", status, c.Size(), err, len(long))
			got := string(c.Body())
			expect.That(t, (!keep || got == long) && (keep || got == ""), "keep %t: got %d bytes", keep, len(got))
		}
	}
}

func TestConnReportsARequestThatCannotBeWrittenAsNotSent(t *testing.T) {
	c := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, err := c.Exchange(make([]byte, 64<<20)) // larger than any send buffer
	expect.ErrorIs(t, err, errNotSent, "got")
}

func TestResponseIsReadInAnyPieces(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		status     int
		body       string
	}{
		{name: "empty 200", text: "HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 0\r\n\r\n", status: 200},
		{name: "204 without a length", text: "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n", status: 204},
		{name: "body", text: "HTTP/1.1 200 OK\r\nContent-Length: 11\r\nX-A: b\r\n\r\nhello\r\n\r\nyo", status: 200, body: "hello\r\n\r\nyo"},
		{name: "header name in lower case", text: "HTTP/1.1 503 Unavailable\r\ncontent-length:3\r\n\r\nwhy", status: 503, body: "why"},
		{name: "chunked", text: "HTTP/1.1 404 \r\nTransfer-Encoding: chunked\r\n\r\n3\r\nwhy\r\nA\r\n\r\n not now\r\n0\r\n\r\n", status: 404, body: "why\r\n not now"},
		{name: "chunked and empty", text: "HTTP/1.1 404 \r\ntransfer-encoding:chunked\r\n\r\n0\r\n\r\n", status: 404},
		{name: "chunks with an extension, and a trailer", text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n02;x=y\r\nhi\r\n0;z\r\nX-A: b\r\nX-B: c\r\n\r\n", status: 200, body: "hi"},
		{name: "chunked is meant where a length is given, too", text: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", status: 200, body: "hi"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for cut := range len(tc.text) {
				first := strings.NewReader(tc.text[:cut])
				r := response{in: bufio.NewReader(io.MultiReader(first, strings.NewReader(tc.text[cut:])))}
				err := r.read(true)
				need.That(t, err == nil && r.status == tc.status && string(r.text) == tc.body && r.size == int64(len(tc.body)),
					"cut at %d: status %d, body of %d bytes %q, %v, want status %d and %q", cut, r.status, r.size, r.text, err, tc.status, tc.body)
				r = response{in: bufio.NewReader(strings.NewReader(tc.text[:cut]))}
				err = r.read(true)
				need.That(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), "after %d of %d bytes: %v", cut, len(tc.text), err)
			}
		})
	}
}

const chunkedHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

func TestConnThatTheServerWillCloseIsNotIdle(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.Header().Set("Connection", "close")
		}
	})
	for _, method := range []string{"GET", "DELETE"} {
		status, err := c.Exchange([]byte(method + " / HTTP/1.1\r\nHost: a\r\n\r\n"))
		need.That(t, err == nil && status == http.StatusOK, "status %d, %v, want 200", status, err)
		expect.Equal(t, c.response.closes, method == "DELETE", "%s: the server closes the connection", method)
	}
	expect.That(t, !c.Idle(), "a connection that the server closes is idle")
}

func TestResponseThatCannotBeReadIsAnError(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       error // nil for any
	}{
		{name: "HTTP/1.0", text: "HTTP/1.0 200 OK\r\n\r\n", want: errNotHTTP},
		{name: "no number", text: "HTTP/1.1 abc\r\n\r\n", want: errNotHTTP},
		{name: "endless header", text: strings.Repeat("x", fewBytes+1), want: errNotHTTP},
		{name: "no length", text: "HTTP/1.1 200 OK\r\nX-A: b\r\n\r\n", want: errNoLength},
		{name: "another encoding", text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", want: errNoLength},
		{name: "chunk without a size", text: chunkedHead + "\r\nhi\r\n"},
		{name: "chunk of a size in words", text: chunkedHead + "two\r\nhi\r\n"},
		{name: "more than the chunk's size", text: chunkedHead + "1\r\nhi\r\n"},
		{name: "more behind the last chunk", text: chunkedHead + "0\r\n\r\nhi", want: errSurplus},
		{name: "length in words", text: "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n"},
		{name: "negative length", text: "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n"},
		{name: "more than the length", text: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", want: errSurplus},
		{name: "body behind a 204", text: "HTTP/1.1 204 No Content\r\n\r\nabc", want: errSurplus},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := response{in: bufio.NewReaderSize(strings.NewReader(tc.text), fewBytes)}
			err := r.read(true)
			expect.That(t, err != nil && (tc.want == nil || errors.Is(err, tc.want)), "%v, want %v", err, tc.want)
		})
	}
}
