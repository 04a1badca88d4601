package httpd

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
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

// formatOf reads which document a client asks for. Everything that does not say json gets XML
// (upstream: ApplicationsResource), so a bare curl does. Version 1 differs in XML only.
func formatOf(r *http.Request, v1 bool) eureka.Format {
	xml := !acceptsJSON(r)
	return eureka.Format{
		XML:     xml,
		Compact: strings.EqualFold(r.Header.Get("X-Eureka-Accept"), "compact"),
		V1:      xml && v1,
	}
}

// fullFormat is formatOf for the routes that know no compact form.
func fullFormat(r *http.Request, v1 bool) eureka.Format {
	f := formatOf(r, v1)
	f.Compact = false
	return f
}

// mediaType is the Content-Type of a format. Jersey clients find no reader for any other.
func mediaType(f eureka.Format) string {
	if f.XML {
		return "application/xml"
	}
	return "application/json"
}

func acceptsJSON(r *http.Request) bool {
	for _, accept := range r.Header["Accept"] {
		if strings.Contains(accept, "json") {
			return true
		}
	}
	return false
}

// wantsGzip says whether the client accepts gzip; a quality of 0 is a refusal.
func wantsGzip(r *http.Request) bool {
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
