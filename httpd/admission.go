package httpd

import (
	"net/http"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// admit checks what must hold for every request and normalizes its path to the form that the routes have.
func admit(r *http.Request) (*http.Request, error) {
	if err := checkBounds(r, web.MaxMetaParams); err != nil {
		return nil, err
	}
	if r.ProtoMajor > 1 && r.TLS == nil {
		return nil, errPlainHTTP2
	}
	if !slices.Contains(allMethods, r.Method) {
		return nil, &web.Refusal{Status: http.StatusMethodNotAllowed, Allow: strings.Join(allMethods, ", ")}
	}
	clean, err := web.CleanPath(r.URL)
	if err != nil {
		return nil, err
	}
	routed := new(http.Request)
	*routed = *r
	routed.URL = clean
	return routed, nil
}

var errPlainHTTP2 = web.BadRequest("HTTP/2 is spoken over TLS only")

// maxPageURI bounds the request line of the dashboard's pages, and of the calls that they make, in bytes: they contain
// long names, escaped, with a reason of 512 bytes, or a key.
const maxPageURI = 8 << 10

// ofPage marks the contexts of calls that pages make.
type ofPage struct{}

// checkBounds refuses a request line that is out of bounds.
func checkBounds(r *http.Request, params int) error {
	if size := len(r.RequestURI); size > web.MaxURIBytes {
		ofDashboard := web.IsPage(r.URL.Path) || r.Context().Value(ofPage{}) != nil
		if !ofDashboard || size > maxPageURI {
			return web.ErrURITooLong
		}
	}
	return web.CheckQuery(r.URL.RawQuery, params)
}

// Consul's API has a router of its own because its paths are taken verbatim: the rest after the fixed part is one
// name, where slashes, empty segments and dots mean nothing (hashicorp/consul, agent/http.go). No path is ever
// redirected: Go's client would repeat a PUT as a GET.

// maxConsulPath bounds the path of a request to Consul's API in bytes: names of keys may be long. Its parameters are
// bounded only by the limit for all headers: a filter may be longer still.
const maxConsulPath = 8 << 10

// isVerbatim reports whether a path, still escaped, belongs to Consul's API or to a fence, whose path contains the
// name of a key.
func isVerbatim(path string) bool {
	rest, ok := strings.CutPrefix(path, "/v1/")
	rest = strings.TrimLeft(rest, "/")
	return ok && rest != "rollcall" && (!strings.HasPrefix(rest, "rollcall/") || strings.HasPrefix(rest, "rollcall/fence/"))
}

// admitVerbatim checks what must hold for every request whose path is taken verbatim.
func admitVerbatim(r *http.Request) error {
	if len(r.RequestURI)-len(r.URL.RawQuery) > maxConsulPath {
		return web.ErrURITooLong
	}
	if r.ProtoMajor > 1 && r.TLS == nil {
		return errPlainHTTP2
	}
	if !order.PlainText(r.URL.Path) {
		return web.BadRequest("the path must be UTF-8 without control characters")
	}
	return web.CheckQuery(r.URL.RawQuery, web.MaxParams)
}
