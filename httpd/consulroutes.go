package httpd

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gorilla/mux"

	"github.com/seed-20419f34/rollcall/httpd/consul"
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

// consulRoutes adds Consul's API and the fences. The most frequent come first.
func (h *Handler) consulRoutes() {
	h.consul.NotFoundHandler = http.HandlerFunc(h.unroutedConsul)
	h.consul.MethodNotAllowedHandler = http.HandlerFunc(h.unroutedConsul)
	h.keyRoutes()
	h.sessionRoutes()
	h.consulRoute("/v1/txn", h.txn, http.MethodPut)
	h.statusRoutes()
	h.agentRoutes()
	h.catalogRoutes()
	h.healthRoutes()
}

// consulRoute adds an endpoint of Consul's API. A variable at the path's end takes all that is left of
// it, slashes too, and nothing as well: it is for the endpoint to miss it. HEAD goes with GET.
func (h *Handler) consulRoute(path string, e endpoint, methods ...string) {
	h.verbatim(path, consulForm, inOneNamespace(h.inDatacenter(e)), methods...)
}

// verbatim is consulRoute for any form of errors.
func (h *Handler) verbatim(path string, form errorForm, e endpoint, methods ...string) {
	if methods[0] == http.MethodGet {
		methods = append([]string{http.MethodHead}, methods...)
	}
	h.consul.Handle(strings.Replace(path, "}", ":.*}", 1), h.handle(path, maxParams, form, h.withCoordination(e))).Methods(methods...)
}

// withCoordination refuses what only a node with consensus can do.
func (h *Handler) withCoordination(e endpoint) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		if h.config.Coordination == nil {
			return errNoCoordination
		}
		return e(w, r)
	}
}

// tenancies are what Consul Enterprise divides its data by, as the free edition says that it has none
// (hashicorp/consul, agent/http_oss.go).
var tenancies = []struct{ param, header, plural string }{
	{"ns", "X-Consul-Namespace", "Namespaces"},
	{"partition", "X-Consul-Partition", "Partitions"},
}

// inOneNamespace refuses requests for another namespace or partition than the default one: to ignore what they
// say would merge tenants, whose writes overwrite each other.
func inOneNamespace(e endpoint) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		for _, t := range tenancies {
			if name := r.Header.Get(t.header); !consul.IsDefault(name) {
				return badRequest(fmt.Sprintf("Invalid header: %q - %s are a Consul Enterprise feature", t.header, t.plural))
			}
			name, _, err := param(r.URL.RawQuery, t.param)
			switch {
			case err != nil:
				return err
			case !consul.IsDefault(name):
				return badRequest(fmt.Sprintf("Invalid query parameter: %q - %s are a Consul Enterprise feature", t.param, t.plural))
			}
		}
		return e(w, r)
	}
}

// inDatacenter refuses requests for another datacenter than the own one.
func (h *Handler) inDatacenter(e endpoint) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		dc, _, err := param(r.URL.RawQuery, "dc")
		if err != nil {
			return err
		}
		if dc != "" && dc != h.datacenter() {
			return consulError("No path to datacenter")
		}
		return e(w, r)
	}
}

// datacenter is the own one's name in Consul's API, where there must be one.
func (h *Handler) datacenter() string {
	if h.config.Datacenter == "" {
		return "dc1"
	}
	return h.config.Datacenter
}

// admitConsul checks what must hold for every request whose path is taken as it came.
func (h *Handler) admitConsul(r *http.Request) error {
	if len(r.RequestURI) > maxConsulURI {
		return errURITooLong
	}
	if r.ProtoMajor > 1 && r.TLS == nil {
		return errPlainHTTP2
	}
	if !utf8.ValidString(r.URL.Path) || strings.IndexFunc(r.URL.Path, unicode.IsControl) >= 0 {
		return badRequest("the path must be UTF-8 without control characters")
	}
	return checkQuery(r.URL.RawQuery, maxParams)
}

// restOfPath is the variable at a path's end, unescaped once.
func restOfPath(r *http.Request) string {
	for _, rest := range mux.Vars(r) {
		name, _ := url.PathUnescape(rest) // net/http has unescaped it before
		return name
	}
	return ""
}

// unroutedConsul answers requests that no route takes.
func (h *Handler) unroutedConsul(w http.ResponseWriter, r *http.Request) {
	form := formOfPath(r.URL.Path)
	methods := h.allowedConsul(r)
	switch {
	case len(methods) == 0:
		h.fail(w, form, &refusal{status: http.StatusNotFound, text: "this is no path of the part of Consul's API that is served here"})
	case r.Method == http.MethodOptions:
		w.Header().Set("Allow", allowHeader(methods))
	default:
		h.fail(w, form, &refusal{status: http.StatusMethodNotAllowed, text: "method " + r.Method + " not allowed", allow: allowHeader(methods)})
	}
}

func allowHeader(methods []string) string {
	return strings.Join(append([]string{http.MethodOptions}, methods...), ",")
}

// allowedConsul lists the methods that the routes of a path take.
func (h *Handler) allowedConsul(r *http.Request) (methods []string) {
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		var match mux.RouteMatch
		if h.consul.Match(probe, &match) && match.MatchErr == nil {
			methods = append(methods, method)
		}
	}
	return methods
}
