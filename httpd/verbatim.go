package httpd

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/httpd/consulroutes"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Consul's API has a router of its own, because its paths are taken as they came: what follows the
// fixed part is one name, in which slashes, empty segments and dots mean nothing (hashicorp/consul,
// agent/http.go). No path is ever redirected: Go's client would repeat a PUT as a GET.

// maxConsulURI bounds a request line of Consul's API in bytes: the names of keys may be long.
const maxConsulURI = 8 << 10

// takenAsIs says whether a path, still escaped, is one of Consul's API, or a fence's, whose names are those of its
// keys.
func takenAsIs(path string) bool {
	rest, ok := strings.CutPrefix(path, "/v1/")
	rest = strings.TrimLeft(rest, "/")
	return ok && rest != "rollcall" && (!strings.HasPrefix(rest, "rollcall/") || strings.HasPrefix(rest, "rollcall/fence/"))
}

// routeAsIs builds the router of the paths that are taken as they came: Consul's API and the fences.
func (h *Handler) routeAsIs() {
	h.consul.NotFoundHandler = http.HandlerFunc(h.unroutedConsul)
	h.consul.MethodNotAllowedHandler = http.HandlerFunc(h.unroutedConsul)
	routes := consulroutes.Routes(h.Node, consulroutes.Config{
		Coordination: h.config.Coordination, ReapCritical: h.config.ReapCritical, RefuseProbe: h.config.RefuseProbe,
	})
	for _, rt := range append(routes, h.own.FenceRoute()) {
		h.consul.Handle(strings.Replace(rt.Path, "}", ":.*}", 1), h.handle(rt.Path, rt, false)).Methods(rt.Methods...)
	}
}

// admitConsul checks what must hold for every request whose path is taken as it came.
func (h *Handler) admitConsul(r *http.Request) error {
	if len(r.RequestURI) > maxConsulURI {
		return web.ErrURITooLong
	}
	if r.ProtoMajor > 1 && r.TLS == nil {
		return errPlainHTTP2
	}
	if !utf8.ValidString(r.URL.Path) || strings.IndexFunc(r.URL.Path, unicode.IsControl) >= 0 {
		return web.BadRequest("the path must be UTF-8 without control characters")
	}
	return web.CheckQuery(r.URL.RawQuery, web.MaxParams)
}

// unroutedConsul answers requests that no route takes.
func (h *Handler) unroutedConsul(w http.ResponseWriter, r *http.Request) {
	form := web.FormOfPath(r.URL.Path)
	methods := allowed(h.consul, r, []string{http.MethodGet, http.MethodPut, http.MethodDelete})
	switch {
	case len(methods) == 0:
		h.Fail(w, form, &web.Refusal{Status: http.StatusNotFound, Text: "this is no path of the part of Consul's API that is served here"})
	case r.Method == http.MethodOptions:
		w.Header().Set("Allow", allowHeader(methods))
	default:
		h.Fail(w, form, &web.Refusal{Status: http.StatusMethodNotAllowed, Text: "method " + r.Method + " not allowed", Allow: allowHeader(methods)})
	}
}

func allowHeader(methods []string) string {
	return strings.Join(append([]string{http.MethodOptions}, methods...), ",")
}
