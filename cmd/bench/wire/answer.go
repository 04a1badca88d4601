package wire

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// maxHead bounds an answer's status line and header.
const maxHead = 16 << 10

var (
	errNotHTTP  = errors.New("not an HTTP/1.1 answer")
	errNoLength = errors.New("the answer has no Content-Length")
	errSurplus  = errors.New("more bytes than the answer has")
)

// answerReader takes an HTTP/1.1 answer in pieces as they arrive, and drops the body unless it is to be
// kept. It knows what the measured servers send: a status line, a header with a Content-Length, a body.
// Chunked answers are errors.
type answerReader struct {
	status  int
	body    int64  // bytes of the body, known once head is false
	missing int64  // bytes of the body that have not come
	head    bool   // the header is not complete
	kept    []byte // the begin of a header that came in pieces
	keep    bool   // keep the body
	text    []byte // the body as far as it has come, if it is kept
}

func (a *answerReader) reset(keep bool) {
	*a = answerReader{head: true, kept: a.kept[:0], keep: keep, text: a.text[:0]}
}

// feed takes the next bytes and reports whether the answer is complete.
func (a *answerReader) feed(b []byte) (whole bool, err error) {
	if a.head {
		if b, err = a.feedHead(b); err != nil || a.head {
			return false, err
		}
	}
	if a.missing -= int64(len(b)); a.missing < 0 {
		return false, errSurplus
	}
	if a.keep {
		a.text = append(a.text, b...)
	}
	return a.missing == 0, nil
}

// feedHead returns what follows the header, if that is complete.
func (a *answerReader) feedHead(b []byte) (rest []byte, err error) {
	if len(a.kept) > 0 {
		a.kept = append(a.kept, b...)
		b = a.kept
	}
	head, rest, complete := bytes.Cut(b, []byte("\r\n\r\n"))
	if !complete {
		if len(b) > maxHead {
			return nil, errNotHTTP
		}
		if len(a.kept) == 0 {
			a.kept = append(a.kept, b...)
		}
		return nil, nil
	}
	a.head = false
	return rest, a.parseHead(head)
}

// statusLine is up to where the status ends, as "HTTP/1.1 204".
const statusLine = len("HTTP/1.1 ") + 3

func (a *answerReader) parseHead(head []byte) (err error) {
	if len(head) < statusLine || !bytes.HasPrefix(head, []byte("HTTP/1.1 ")) {
		return errNotHTTP
	}
	if a.status, err = strconv.Atoi(string(head[statusLine-3 : statusLine])); err != nil {
		return errNotHTTP
	}
	length, given := contentLength(head)
	switch {
	case a.status == http.StatusNoContent || a.status == http.StatusNotModified:
		return nil
	case !given:
		return errNoLength
	}
	if a.body, err = strconv.ParseInt(string(length), 10, 64); err != nil || a.body < 0 {
		return fmt.Errorf("Content-Length %q is not a number of bytes", length)
	}
	a.missing = a.body
	return nil
}

// contentLength finds the header's value. Lines are compared by hand, since almost all answers have a
// line or two.
func contentLength(head []byte) (value []byte, given bool) {
	const name = "content-length:"
	for len(head) > 0 {
		var line []byte
		line, head, _ = bytes.Cut(head, []byte("\r\n"))
		if len(line) >= len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			return bytes.TrimSpace(line[len(name):]), true
		}
	}
	return nil, false
}
