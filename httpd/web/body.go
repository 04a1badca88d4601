package web

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// maxRatio is how far a compressed body may expand; registrations reach about 20.
const maxRatio = 100

var (
	errBodyTooLarge = &Refusal{Status: http.StatusRequestEntityTooLarge}
	errBodyBroken   = &Refusal{Status: http.StatusBadRequest}
	errBodyEncoding = &Refusal{Status: http.StatusUnsupportedMediaType, Text: "the body's Content-Encoding must be gzip or none"}
)

// readBody reads and decodes a body of at most limit bytes. A body that breaks off is refused: its beginning must have
// no effect.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, errBodyTooLarge
	}
	body := http.MaxBytesReader(w, r.Body, limit)
	switch strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))) {
	case "", "identity":
		return readAll(chargedReader{body, w})
	case "gzip":
		return readCompressed(w, body, limit)
	}
	return nil, errBodyEncoding
}

func readAll(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(r)
	if err != nil {
		return nil, bodyError(err)
	}
	return body, nil
}

func bodyError(err error) error {
	if busy, ok := errors.AsType[*Refusal](err); ok {
		return busy
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return errBodyTooLarge
	}
	return errBodyBroken
}

func readCompressed(w http.ResponseWriter, compressed io.Reader, limit int64) ([]byte, error) {
	counted := &countingReader{from: compressed}
	decoder, err := gzip.NewReader(counted)
	if err != nil {
		return nil, bodyError(err)
	}
	body, err := readAll(chargedReader{io.LimitReader(decoder, limit+1), w})
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > limit || int64(len(body)) > maxRatio*counted.n {
		return nil, errBodyTooLarge
	}
	return body, nil
}

type countingReader struct {
	from io.Reader
	n    int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}

// DropBody reads and drops a body that has no meaning in the protocol (Jersey clients send {} with every PUT).
// One that is too large or breaks off is still refused.
func DropBody(w http.ResponseWriter, r *http.Request, limit int64) error {
	if r.ContentLength == 0 {
		return nil
	}
	if r.ContentLength > limit {
		return errBodyTooLarge
	}
	return dropRest(w, r, limit)
}

// dropRest drops the unread rest of a body, like DropBody.
func dropRest(w http.ResponseWriter, r *http.Request, limit int64) error {
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, limit)); err != nil {
		return bodyError(err)
	}
	return nil
}

// RawBody reads a body unchanged, up to limit bytes.
func (c *Call) RawBody(limit int64) ([]byte, error) {
	return readAll(chargedReader{io.LimitReader(c.R.Body, limit), c.W})
}
