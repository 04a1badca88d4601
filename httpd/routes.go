package httpd

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/eurekaroutes"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// handleUnrouted sets the responses of a router to requests that match none of its routes.
func (h *Handler) handleUnrouted(router *mux.Router) {
	router.NotFoundHandler = http.HandlerFunc(h.unrouted)
	router.MethodNotAllowedHandler = http.HandlerFunc(h.unrouted)
}

// routes builds the routers: Eureka's resources under each base path, then everything else.
func (h *Handler) routes() {
	h.handleUnrouted(h.router)
	// Longest first, because /eureka is a prefix of /eureka/v2.
	for _, base := range slices.SortedFunc(slices.Values(h.config.BasePaths), func(a, b string) int { return len(b) - len(a) }) {
		h.appsPrefixes = append(h.appsPrefixes, base+"/apps/")
		v1 := strings.EqualFold(base[strings.LastIndex(base, "/")+1:], "v1")
		under := h.router.PathPrefix(base).Subrouter()
		h.handleUnrouted(under)
		for _, rt := range h.eureka.Routes() {
			// A copy for each, because mux writes into its argument, and all nodes of a process share the table.
			under.Handle(rt.Path, h.handle("{base}"+rt.Path, rt, v1)).Methods(slices.Clone(rt.Methods)...)
		}
	}
	exposed := promhttp.HandlerFor(h.config.Metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: h.config.ScrapeErrors})
	scraped := web.Route[*web.Call]{Needs: web.ToRead(access.Metrics), Methods: web.Get, Path: "/metrics", Form: web.EurekaForm, Do: func(c *web.Call) (any, error) {
		exposed.ServeHTTP(c.W, c.R)
		return web.Sent, nil
	}}
	for _, rt := range append(slices.Concat(h.own.Routes(), h.dashboard.Routes(), h.eureka.RootRoutes()), scraped) {
		h.router.Handle(rt.Path, h.handle(rt.Path, rt, false)).Methods(slices.Clone(rt.Methods)...)
	}
	h.routeVerbatim()
}

// handle turns a route into a handler; metrics count the route under template.
func (h *Handler) handle(template string, rt web.Route[*web.Call], v1 bool) http.Handler {
	params := web.MaxParams
	if rt.Path == eurekaroutes.MetadataPath {
		params = web.MaxMetaParams
	}
	writes := slices.Contains(rt.Methods, http.MethodPut)
	ofEureka := strings.HasPrefix(template, "{base}")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if resp, ok := w.(*web.Response); ok {
			resp.Route = template
		}
		if ofEureka {
			eurekaroutes.PresetMediaType(w.Header(), r)
		}
		err := web.CheckQuery(r.URL.RawQuery, params)
		if err == nil && writes && r.Method == http.MethodGet {
			put := *r // any page can make a browser send a GET that writes, with its user's password
			put.Method = http.MethodPut
			err = h.sites.checkWrite(&put)
		}
		if err == nil {
			err = h.node.NewCall(w, r, v1).Serve(rt)
		}
		if err != nil {
			h.node.Fail(w, rt.Form, err)
		}
	})
}

// unrouted responds to requests that match no route: 405 if the path has routes with other methods, else 404.
// It asks the routers again, because they forget the difference within a base path (mux v1.8.1, Route.Match).
func (h *Handler) unrouted(w http.ResponseWriter, r *http.Request) {
	err := error(web.NotFound)
	if methods := allowed(h.router, r, allMethods); len(methods) > 0 {
		err = &web.Refusal{Status: http.StatusMethodNotAllowed, Allow: strings.Join(methods, ", ")}
	}
	h.node.Fail(w, web.FormOfPath(r.URL.Path), err)
}

// allowed lists the methods of the routes of a path, for the Allow header.
func allowed(router *mux.Router, r *http.Request, methods []string) []string {
	return slices.DeleteFunc(slices.Clone(methods), func(method string) bool {
		probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		var match mux.RouteMatch
		return !router.Match(probe, &match) || match.MatchErr != nil
	})
}

// routeVerbatim builds the router of the paths that are not cleaned (see isVerbatim): Consul's API and the fences.
func (h *Handler) routeVerbatim() {
	h.verbatim.NotFoundHandler = http.HandlerFunc(h.unroutedVerbatim)
	h.verbatim.MethodNotAllowedHandler = http.HandlerFunc(h.unroutedVerbatim)
	routes := consul.Routes(h.node, consul.Config{
		Coordination: h.config.Coordination, Agents: h.config.Agents, Host: h.config.Host, ReapCritical: h.config.ReapCritical, JudgeProbe: h.config.JudgeProbe,
	})
	for _, rt := range append(routes, h.own.FenceRoute()) {
		route := h.verbatim.Handle(strings.Replace(rt.Path, "}", ":.*}", 1), h.handle(rt.Path, rt, false)).Methods(slices.Clone(rt.Methods)...)
		if longer := longerPaths(rt.Path, routes); len(longer) > 0 { // which own a path for all methods
			route.MatcherFunc(func(r *http.Request, _ *mux.RouteMatch) bool {
				return !slices.ContainsFunc(longer, func(other string) bool {
					return r.URL.Path == other || strings.HasSuffix(other, "/") && strings.HasPrefix(r.URL.Path, other)
				})
			})
		}
	}
}

// longerPaths returns the paths of routes, without their variable, that a path with a variable would also match: GET
// agent/service/{id} would take agent/service/register for an id.
func longerPaths(path string, routes []web.Route[*web.Call]) (longer []string) {
	fixed, _, open := strings.Cut(path, "{")
	for _, rt := range routes {
		if other, _, _ := strings.Cut(rt.Path, "{"); open && len(other) > len(fixed) && strings.HasPrefix(other, fixed) {
			longer = append(longer, other)
		}
	}
	return longer
}

// unroutedVerbatim responds to requests of the verbatim paths that match no route.
func (h *Handler) unroutedVerbatim(w http.ResponseWriter, r *http.Request) {
	form := web.FormOfPath(r.URL.Path)
	methods := allowed(h.verbatim, r, []string{http.MethodGet, http.MethodPut, http.MethodDelete})
	switch {
	case len(methods) == 0:
		h.node.Fail(w, form, consul.Unserved(r.URL.Path, h.node.AccessMode()))
	case r.Method == http.MethodOptions:
		w.Header().Set("Allow", allowHeader(methods))
	default:
		h.node.Fail(w, form, &web.Refusal{Status: http.StatusMethodNotAllowed, Text: "method " + r.Method + " not allowed", Allow: allowHeader(methods)})
	}
}

// allowHeader returns the Allow header of a verbatim path: Consul allows OPTIONS on every path.
func allowHeader(methods []string) string {
	return strings.Join(append([]string{http.MethodOptions}, methods...), ",")
}
