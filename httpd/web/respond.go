package web

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// MinCompressed is the size in bytes from which a response is worth compressing.
const MinCompressed = 1 << 10

// Respond sends a complete body, compressed if the client asked for it.
func Respond(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	encode(body, WantsGzip(r)).send(w, status, contentType)
}

// encoded is a body as it is sent.
type encoded struct {
	body []byte
	gzip bool
}

// encode compresses a text if that is wanted and worthwhile.
func encode(text []byte, gzip bool) encoded {
	if gzip && len(text) > MinCompressed {
		return encoded{Compress(text), true}
	}
	return encoded{text, false}
}

func (e encoded) send(w http.ResponseWriter, status int, contentType string) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Add("Vary", "Accept-Encoding")
	if e.gzip {
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Length", strconv.Itoa(len(e.body)))
	shrinkReservation(w, len(e.body))
	SendBody(w, status, int64(len(e.body)), e.body)
}

// net/http gives a connection 4 KiB of a response at a time: a slightly larger list takes two system calls, and wakes
// its client, which can do nothing with the first 4 KiB, twice. Sending it in one piece saves an eighth of the cost of
// such a response (docs/benchmarks.md).

// A body of these sizes in bytes leaves in one piece with its header: a smaller one does anyway, and copying a larger
// one does not pay.
const (
	leastWhole = 2 << 10
	mostWhole  = 64 << 10
)

// Gatherer is a connection that can collect what is written to it.
type Gatherer interface {
	// Gather collects what is written from now on.
	Gather()
	// Send sends what was collected, and stops collecting. If that fails, it closes the connection.
	Send()
}

// SendBody sends the header and a complete body of size bytes in all its parts.
func SendBody(w http.ResponseWriter, status int, size int64, parts ...[]byte) {
	w.WriteHeader(status)
	if resp, ok := w.(interface{ gatherer() Gatherer }); ok && size >= leastWhole && size <= mostWhole {
		if g := resp.gatherer(); g != nil {
			g.Gather()
			defer g.Send()
			defer func() { _ = http.NewResponseController(w).Flush() }() // not an error: the client went away
		}
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return // the client went away
		}
	}
}

// gzipWriters holds idle *gzip.Writer values.
var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // cannot fail: the level is valid
	return w
}}

// Compress returns text as a gzip stream. Writing to memory does not fail.
func Compress(text []byte) []byte {
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	var buf bytes.Buffer
	w.Reset(&buf)
	_, _ = w.Write(text)
	_ = w.Close()
	return buf.Bytes()
}

// WriteGzip writes the output of write to w as a gzip stream. The stream does not end if write fails.
func WriteGzip(w io.Writer, write func(io.Writer) error) error {
	zipped := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(zipped)
	zipped.Reset(w)
	if err := write(zipped); err != nil {
		return err
	}
	_ = zipped.Close() // not an error: the client went away
	return nil
}

// WantsGzip reports whether the client accepts gzip; a quality of 0 is a refusal.
func WantsGzip(r *http.Request) bool {
	for _, line := range r.Header["Accept-Encoding"] {
		for coding := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(coding, ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") {
				_, q, weighted := strings.Cut(params, "q=")
				quality, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
				return !weighted || err != nil || quality != 0
			}
		}
	}
	return false
}
