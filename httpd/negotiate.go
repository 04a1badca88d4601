package httpd

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

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
