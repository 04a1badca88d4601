package httpd

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// minCompressed is the size in bytes from which an answer is worth compressing.
const minCompressed = 1 << 10

// respond sends a body that is complete, compressed if the client asked for it.
func respond(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Add("Vary", "Accept-Encoding")
	if len(body) > minCompressed && wantsGzip(r) {
		header.Set("Content-Encoding", "gzip")
		body = compress(body)
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	built(w, len(body))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that went away is nobody's error
}

// respondReady sends parts that are encoded already.
func respondReady(w http.ResponseWriter, rep representation, size int64, parts ...[]byte) {
	header := w.Header()
	header.Set("Content-Type", mediaType(rep.format))
	header.Add("Vary", varyEureka)
	header.Add("Vary", "Accept-Encoding")
	if rep.gzip {
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Length", strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusOK)
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return // the client went away
		}
	}
}

// varyEureka are the request headers that choose among Eureka's documents.
const varyEureka = "Accept, X-Eureka-Accept"

// respondEureka sends a document of the protocol.
func respondEureka(w http.ResponseWriter, r *http.Request, status int, f eureka.Format, body []byte) {
	w.Header().Add("Vary", varyEureka)
	respond(w, r, status, mediaType(f), body)
}

var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
	return w
}}

// compress returns text as a gzip stream. Writing to memory does not fail.
func compress(text []byte) []byte {
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	var buf bytes.Buffer
	w.Reset(&buf)
	_, _ = w.Write(text)
	_ = w.Close()
	return buf.Bytes()
}
