package httpd

import (
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/dashboard"
	"github.com/seed-20419f34/rollcall/httpd/eurekaroutes"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// allMethods are the methods that any route has.
var allMethods = []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete}

// answerUnrouted sets what a router answers to requests that none of its routes takes.
func (h *Handler) answerUnrouted(router *mux.Router) {
	router.NotFoundHandler = http.HandlerFunc(h.unrouted)
	router.MethodNotAllowedHandler = http.HandlerFunc(h.unrouted)
}

// ownRoute is a row of the table of our own API.
type ownRoute struct {
	route
	answers any // the document of package api that 200 comes with; nil: none, or one that servers say to each other
}

const memberPath = "/v1/rollcall/members/{name}" // of one node of the cluster

// ownRoutes are our own API, and what an operator looks at.
var ownRoutes = []ownRoute{
	{route{web.Get, "/v1/rollcall/status", web.JSONForm, call.clusterStatus}, api.Status{}},
	{route{web.Get, "/v1/rollcall/apps", web.JSONForm, call.listInstances}, []api.Instance{}},
	{route{web.Get, "/v1/rollcall/events", web.JSONForm, web.Viewed(call.events)}, api.Events{}},
	{route{web.Get, "/v1/rollcall/settings", web.JSONForm, web.Viewed(call.settings)}, nil},
	{route{web.Get, "/v1/rollcall/self-preservation", web.JSONForm, web.Viewed(call.selfPreservation)}, api.SelfPreservation{}},
	{route{web.Post, "/v1/rollcall/self-preservation/release", web.JSONForm, call.releasePreservation}, api.SelfPreservation{}},
	{route{web.Post, "/v1/rollcall/self-preservation/hold", web.JSONForm, call.holdPreservation}, api.SelfPreservation{}},
	{route{web.Get, "/v1/rollcall/apps/{app}/{id}/explain", web.JSONForm, web.Viewed(call.explain)}, api.Explanation{}},
	{route{web.Put, "/v1/rollcall/apps/{app}/{id}/override", web.JSONForm, call.override}, api.Acted{}},
	{route{web.Delete, "/v1/rollcall/apps/{app}/{id}/override", web.JSONForm, call.endOverride}, api.Acted{}},
	{route{web.Put, "/v1/rollcall/apps/{app}/{id}/quarantine", web.JSONForm, call.quarantine}, api.Acted{}},
	{route{web.Delete, "/v1/rollcall/apps/{app}/{id}/quarantine", web.JSONForm, call.endQuarantine}, api.Acted{}},
	{route{web.Post, "/v1/rollcall/prune", web.JSONForm, call.prune}, []api.Pruned{}},
	{route{web.Delete, memberPath, web.JSONForm, call.removeMember}, api.RemovedMember{}},
	{route{web.GetOnly, "/v1/rollcall/watch", web.JSONForm, call.watch}, api.Changes{}},

	{route{web.Post, "/v1/rollcall/replication", web.JSONForm, exchange(Peers.Receive)}, nil},
	{route{web.Post, "/v1/rollcall/replication/digest", web.JSONForm, exchange(Peers.Compare)}, nil},
	{route{web.GetOnly, "/v1/rollcall/replication/state", web.JSONForm, withPeers(call.replicationState)}, nil},
	{route{web.Get, "/v1/rollcall/peers", web.JSONForm, withPeers(call.peers)}, api.Peers{}},
	{route{web.GetOnly, "/v1/rollcall/peers/{name}/diff", web.JSONForm, withPeers(call.diffPeer)}, api.PeerDiff{}},
	{route{web.Post, "/v1/rollcall/peers/{name}/repair", web.JSONForm, withPeers(web.Bodiless(call.repairPeer))}, api.PeerDiff{}},
	{route{web.Post, "/v1/rollcall/peers/{name}/pause", web.JSONForm, withPeers(web.Bodiless(call.pausePeer))}, nil},
	{route{web.Post, "/v1/rollcall/peers/{name}/resume", web.JSONForm, withPeers(web.Bodiless(call.resumePeer))}, nil},
	{route{web.Post, "/v1/rollcall/peers/{name}/forget", web.JSONForm, withPeers(web.Bodiless(call.forgetSender))}, nil},

	{route{web.Get, "/v1/rollcall/sessions", web.JSONForm, web.WithCoordination(call.ownSessions)}, []api.Session{}},
	{route{web.Get, "/v1/rollcall/sessions/{id}", web.JSONForm, web.WithCoordination(call.ownSession)}, api.Session{}},
	{route{web.Post, "/v1/rollcall/sessions", web.JSONForm, web.WithCoordination(call.newSession)}, api.Session{}},
	{route{web.Put, "/v1/rollcall/sessions/{id}/renew", web.JSONForm, web.WithCoordination(web.Bodiless(call.renewOwn))}, api.Session{}},
	{route{web.Delete, "/v1/rollcall/sessions/{id}", web.JSONForm, web.WithCoordination(web.Bodiless(call.destroyOwn))}, api.Destroyed{}},
	{route{web.Get, "/v1/rollcall/locks", web.JSONForm, onPermits(kv.Lock, permitsOf.list)}, []api.Permits{}},
	{route{web.Get, "/v1/rollcall/locks/{name}", web.JSONForm, onPermits(kv.Lock, permitsOf.show)}, api.Permits{}},
	{route{web.Put, "/v1/rollcall/locks/{name}", web.JSONForm, onPermits(kv.Lock, permitsOf.acquire)}, api.Acquired{}},
	{route{web.Delete, "/v1/rollcall/locks/{name}", web.JSONForm, onPermits(kv.Lock, permitsOf.release)}, api.Released{}},
	{route{web.Get, "/v1/rollcall/semaphores", web.JSONForm, onPermits(kv.Semaphore, permitsOf.list)}, []api.Permits{}},
	{route{web.Get, "/v1/rollcall/semaphores/{name}", web.JSONForm, onPermits(kv.Semaphore, permitsOf.show)}, api.Permits{}},
	{route{web.Put, "/v1/rollcall/semaphores/{name}", web.JSONForm, onPermits(kv.Semaphore, permitsOf.acquire)}, api.Acquired{}},
	{route{web.Delete, "/v1/rollcall/semaphores/{name}", web.JSONForm, onPermits(kv.Semaphore, permitsOf.release)}, api.Released{}},

	{route{web.Get, "/healthz", web.JSONForm, call.healthz}, nil},
	{route{web.Get, "/readyz", web.JSONForm, call.readyz}, nil},
}

// routes builds the routers: Eureka's resources under each base path, then everything else.
func (h *Handler) routes() {
	h.answerUnrouted(h.router)
	// The longest first: /eureka is the beginning of /eureka/v2.
	for _, base := range slices.SortedFunc(slices.Values(h.config.BasePaths), func(a, b string) int { return len(b) - len(a) }) {
		h.appsPrefixes = append(h.appsPrefixes, base+"/apps/")
		v1 := strings.EqualFold(base[strings.LastIndex(base, "/")+1:], "v1")
		under := h.router.PathPrefix(base).Subrouter()
		h.answerUnrouted(under)
		for _, rt := range h.eureka.Routes() {
			under.Handle(rt.Path, h.handle("{base}"+rt.Path, rt, v1)).Methods(rt.Methods...)
		}
	}
	for _, own := range ownRoutes {
		rt := h.bound(own.route)
		h.router.Handle(rt.Path, h.handle(rt.Path, rt, false)).Methods(rt.Methods...)
	}
	for _, rt := range append(dashboard.Routes(h.Node, h.peerStatus), h.eureka.RootRoutes()...) {
		h.router.Handle(rt.Path, h.handle(rt.Path, rt, false)).Methods(rt.Methods...)
	}
	exposed := promhttp.HandlerFor(h.config.Metrics, promhttp.HandlerOpts{})
	scraped := web.Route[*web.Call]{Methods: web.Get, Path: "/metrics", Form: web.EurekaForm, Do: func(c *web.Call) (any, error) {
		exposed.ServeHTTP(c.W, c.R)
		return web.Sent, nil
	}}
	h.router.Handle(scraped.Path, h.handle(scraped.Path, scraped, false)).Methods(scraped.Methods...)
	h.routeAsIs()
}

func (h *Handler) callOf(c *web.Call) call { return call{c, h} }

func (h *Handler) bound(rt route) web.Route[*web.Call] { return web.Bind([]route{rt}, h.callOf)[0] }

// handle turns a route into a handler; template is the metrics' name of the route.
func (h *Handler) handle(template string, rt web.Route[*web.Call], v1 bool) http.Handler {
	params := web.MaxParams
	if rt.Path == eurekaroutes.MetadataPath {
		params = web.MaxMetaParams
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a, ok := w.(*web.Response); ok {
			a.Route = template
		}
		err := web.CheckQuery(r.URL.RawQuery, params)
		if err == nil {
			err = h.Node.NewCall(w, r, v1).Serve(rt)
		}
		if err != nil {
			h.Fail(w, rt.Form, err)
		}
	})
}

// unrouted answers requests that no route takes: 405 if one of the path takes another method. It
// finds that out by itself, because the router forgets it within a base path (mux v1.8.1, Route.Match).
func (h *Handler) unrouted(w http.ResponseWriter, r *http.Request) {
	err := error(web.NotFound)
	if methods := allowed(h.router, r, allMethods); len(methods) > 0 {
		err = &web.Refusal{Status: http.StatusMethodNotAllowed, Allow: strings.Join(methods, ", ")}
	}
	h.Fail(w, web.FormOfPath(r.URL.Path), err)
}

// allowed lists those methods that the routes of a path take, for the Allow header.
func allowed(router *mux.Router, r *http.Request, methods []string) []string {
	return slices.DeleteFunc(slices.Clone(methods), func(method string) bool {
		probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		var match mux.RouteMatch
		return !router.Match(probe, &match) || match.MatchErr != nil
	})
}

func stack() string { return string(debug.Stack()) }
