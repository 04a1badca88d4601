package web

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// MinCompressed is the size in bytes from which a response is worth compressing.
const MinCompressed = 1 << 10

// Respond sends a body that is complete, compressed if the client asked for it.
func Respond(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Add("Vary", "Accept-Encoding")
	if len(body) > MinCompressed && WantsGzip(r) {
		header.Set("Content-Encoding", "gzip")
		body = Compress(body)
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	shrinkReservation(w, len(body))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that went away is no error
}

// GzipWriters are *gzip.Writer that wait for use.
var GzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return w
}}

// Compress returns text as a gzip stream. Writing to memory does not fail.
func Compress(text []byte) []byte {
	w := GzipWriters.Get().(*gzip.Writer)
	defer GzipWriters.Put(w)
	var buf bytes.Buffer
	w.Reset(&buf)
	_, _ = w.Write(text)
	_ = w.Close()
	return buf.Bytes()
}

// WantsGzip says whether the client accepts gzip; a quality of 0 is a refusal.
func WantsGzip(r *http.Request) bool {
	for _, line := range r.Header["Accept-Encoding"] {
		for coding := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(coding, ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") {
				return !zeroQuality(params)
			}
		}
	}
	return false
}

func zeroQuality(params string) bool {
	_, q, ok := strings.Cut(params, "q=")
	quality, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
	return ok && err == nil && quality == 0
}
