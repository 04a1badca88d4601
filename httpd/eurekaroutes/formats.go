package eurekaroutes

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

var errBodyType = &web.Refusal{Status: http.StatusUnsupportedMediaType, Text: "the body's Content-Type must be application/json or application/xml"}

// bodyFormat returns how a body is written, by its Content-Type or, if that is missing or says nothing (curl -d calls
// everything a form), by its first character.
func bodyFormat(contentType string, body []byte) (eureka.Format, error) {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	switch {
	case kind == "application/json", strings.HasSuffix(kind, "+json"), kind == "text/json":
		return eureka.Format{}, nil
	case kind == "application/xml", strings.HasSuffix(kind, "+xml"), kind == "text/xml":
		return eureka.Format{XML: true}, nil
	case kind == "", kind == "application/x-www-form-urlencoded", strings.HasPrefix(kind, "text/"):
		return eureka.Format{XML: bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("<"))}, nil
	}
	return eureka.Format{}, errBodyType
}

// representation is a form of the document of the whole registry.
type representation struct {
	format eureka.Format
	gzip   bool
}

// slot numbers the representations.
func (r representation) slot() int {
	n := 0
	for bit, set := range []bool{r.format.XML, r.format.Compact, r.format.V1, r.gzip} {
		if set {
			n |= 1 << bit
		}
	}
	return n
}

// respondReady sends parts that are already encoded.
func respondReady(w http.ResponseWriter, rep representation, size int64, parts ...[]byte) {
	header := w.Header()
	header.Set("Content-Type", mediaType(rep.format))
	header.Add("Vary", varyEureka)
	header.Add("Vary", "Accept-Encoding")
	if rep.gzip {
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Length", strconv.FormatInt(size, 10))
	web.SendBody(w, http.StatusOK, size, parts...)
}

// varyEureka lists the request headers that choose among Eureka's documents.
const varyEureka = "Accept, X-Eureka-Accept"

// respondEureka sends a document of the protocol.
func respondEureka(w http.ResponseWriter, r *http.Request, status int, f eureka.Format, body []byte) {
	w.Header().Add("Vary", varyEureka)
	web.Respond(w, r, status, mediaType(f), body)
}

// formatOf returns which document a client asks for. Everything that does not say json gets XML (upstream:
// ApplicationsResource), so a bare curl does. Version 1 only differs in XML.
func formatOf(r *http.Request, v1 bool) eureka.Format {
	xml := !acceptsJSON(r)
	return eureka.Format{
		XML:     xml,
		Compact: strings.EqualFold(r.Header.Get("X-Eureka-Accept"), "compact"),
		V1:      xml && v1,
	}
}

// fullFormat is formatOf for the routes that have no compact form.
func fullFormat(r *http.Request, v1 bool) eureka.Format {
	f := formatOf(r, v1)
	f.Compact = false
	return f
}

// mediaType returns the Content-Type of a format. Jersey clients find no reader for any other.
func mediaType(f eureka.Format) string {
	if f.XML {
		return "application/xml"
	}
	return "application/json"
}

// Values of the Content-Type header. They are made once, because every heartbeat has one.
var (
	typeXML  = []string{mediaType(eureka.Format{XML: true})}
	typeJSON = []string{mediaType(eureka.Format{})}
)

// PresetMediaType sets the Content-Type that a response without a body keeps. Netflix's own server sends one there,
// too, and some clients use it to choose how to read the empty body. A response with a body sets its own.
func PresetMediaType(header http.Header, r *http.Request) {
	if acceptsJSON(r) {
		header["Content-Type"] = typeJSON
	} else {
		header["Content-Type"] = typeXML
	}
}

func acceptsJSON(r *http.Request) bool {
	for _, accept := range r.Header["Accept"] {
		if strings.Contains(accept, "json") {
			return true
		}
	}
	return false
}

func writeInstance(w http.ResponseWriter, r *http.Request, status int, f eureka.Format, v web.FreshView, lease *registry.Lease) {
	respondEureka(w, r, status, f, eureka.AppendInstanceDocument(nil, f, lease, v.LastRenewal(lease)))
}

// representation returns the form of a list.
func (c call) representation() representation {
	return representation{format: formatOf(c.R, c.V1), gzip: web.WantsGzip(c.R)}
}

// document sends a document of Eureka's protocol.
func (c call) document(f eureka.Format, body []byte) (any, error) {
	respondEureka(c.W, c.R, http.StatusOK, f, body)
	return web.Sent, nil
}

// sharedDocument sends a document of Eureka's protocol that is built once per version for all requests.
func (c call) sharedDocument(what string, f eureka.Format, version any, leases iter.Seq[*registry.Lease], build func() []byte) (any, error) {
	c.W.Header().Add("Vary", varyEureka)
	what = fmt.Sprintf("eureka/%d/%s", representation{format: f}.slot(), what)
	return c.RespondShared(what, version, mediaType(f), func() int { return web.WeightOf(leases) }, func() ([]byte, error) { return build(), nil })
}

// decodedEureka is web.Decode for a body that may be in either of the protocol's formats.
func decodedEureka[T any](c call, limit int64, decode func(body []byte, f eureka.Format) (T, error)) T {
	return web.Decode(c.Call, limit, func(body []byte) (value T, err error) {
		f, err := bodyFormat(c.R.Header.Get("Content-Type"), body)
		if err != nil {
			return value, err
		}
		if value, err = decode(body, f); errors.Is(err, eureka.ErrUnparsable) {
			err = &web.Refusal{Status: http.StatusBadRequest, Text: string(eureka.AppendParseError(nil, f)), MediaType: mediaType(f), Cause: err}
		}
		return value, err
	})
}
