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
)

// allMethods are the methods that any route has.
var allMethods = []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete}

// answerUnrouted sets what a router answers to requests that none of its routes takes.
func (h *Handler) answerUnrouted(router *mux.Router) {
	router.NotFoundHandler = http.HandlerFunc(h.unrouted)
	router.MethodNotAllowedHandler = http.HandlerFunc(h.unrouted)
}

// route is a row of the tables of routes.
type route struct {
	methods []string
	path    string
	form    errorForm // of its errors, and of the document that it answers
	do      endpoint
}

// ownRoute is a row of the table of our own API.
type ownRoute struct {
	route
	answers any // the document of package api that 200 comes with; nil: none, or one that servers say to each other
}

// Methods of routes.
var (
	get      = []string{http.MethodGet, http.MethodHead}
	getOnly  = []string{http.MethodGet} // where headers alone say nothing
	put      = []string{http.MethodPut}
	post     = []string{http.MethodPost}
	del      = []string{http.MethodDelete}
	putOrGet = []string{http.MethodPut, http.MethodGet}
)

// eurekaRoutes are the endpoints of the protocol under each base path.
var eurekaRoutes = []route{
	{get, "/apps", eurekaForm, loaded(cached(allApps, (*call).fullList))},
	{get, "/apps/delta", eurekaForm, loaded(cached(allAppsDelta, (*call).delta))},
	{get, "/apps/{app}", eurekaForm, loaded(cached(oneApp, viewed((*call).application)))},
	{get, "/apps/{app}/{id}", eurekaForm, viewed((*call).instance)},
	{get, "/instances/{id}", eurekaForm, viewed((*call).instanceAnywhere)},
	{get, "/vips/{vip}", eurekaForm, loaded(cached(oneVIP, byAddress("vip", freshView.ByVIP)))},
	{get, "/svips/{svip}", eurekaForm, loaded(cached(oneSecureVIP, byAddress("svip", freshView.BySecureVIP)))},
	{get, "/status", eurekaForm, (*call).serverStatus},
	{get, statusOverridesPath, eurekaForm, viewed((*call).statusOverrides)},
	{post, "/apps/{app}", eurekaForm, (*call).register},
	{put, "/apps/{app}/{id}", emptyForm, (*call).renewRouted},
	{del, "/apps/{app}/{id}", emptyForm, (*call).cancel},
	{put, "/apps/{app}/{id}/status", eurekaForm, (*call).setStatus},
	{del, "/apps/{app}/{id}/status", eurekaForm, (*call).deleteStatus},
	{put, metadataPath, eurekaForm, (*call).updateMetadata},
	{post, "/peerreplication/batch", eurekaForm, ofBatches(batchPatience, (*call).batch)},
	{put, "/asg/{asg}/status", emptyForm, bodiless((*call).autoScalingGroup)},
}

const (
	metadataPath        = "/apps/{app}/{id}/metadata"
	statusOverridesPath = "/serverinfo/statusoverrides"
	memberPath          = "/v1/rollcall/members/{name}" // of one node of the cluster
)

// ownRoutes are our own API, and what an operator looks at.
var ownRoutes = []ownRoute{
	{route{get, "/v1/rollcall/status", jsonForm, (*call).clusterStatus}, api.Status{}},
	{route{get, "/v1/rollcall/apps", jsonForm, (*call).listInstances}, []api.Instance{}},
	{route{get, "/v1/rollcall/events", jsonForm, viewed((*call).events)}, api.Events{}},
	{route{get, "/v1/rollcall/settings", jsonForm, viewed((*call).settings)}, nil},
	{route{get, "/v1/rollcall/self-preservation", jsonForm, viewed((*call).selfPreservation)}, api.SelfPreservation{}},
	{route{post, "/v1/rollcall/self-preservation/release", jsonForm, (*call).releasePreservation}, api.SelfPreservation{}},
	{route{post, "/v1/rollcall/self-preservation/hold", jsonForm, (*call).holdPreservation}, api.SelfPreservation{}},
	{route{get, "/v1/rollcall/apps/{app}/{id}/explain", jsonForm, viewed((*call).explain)}, api.Explanation{}},
	{route{put, "/v1/rollcall/apps/{app}/{id}/override", jsonForm, (*call).override}, api.Acted{}},
	{route{del, "/v1/rollcall/apps/{app}/{id}/override", jsonForm, (*call).endOverride}, api.Acted{}},
	{route{put, "/v1/rollcall/apps/{app}/{id}/quarantine", jsonForm, (*call).quarantine}, api.Acted{}},
	{route{del, "/v1/rollcall/apps/{app}/{id}/quarantine", jsonForm, (*call).endQuarantine}, api.Acted{}},
	{route{post, "/v1/rollcall/prune", jsonForm, (*call).prune}, []api.Pruned{}},
	{route{del, memberPath, jsonForm, (*call).removeMember}, api.RemovedMember{}},
	{route{getOnly, "/v1/rollcall/watch", jsonForm, (*call).watch}, api.Changes{}},

	{route{post, "/v1/rollcall/replication", jsonForm, exchange(Peers.Receive)}, nil},
	{route{post, "/v1/rollcall/replication/digest", jsonForm, exchange(Peers.Compare)}, nil},
	{route{getOnly, "/v1/rollcall/replication/state", jsonForm, withPeers((*call).replicationState)}, nil},
	{route{get, "/v1/rollcall/peers", jsonForm, withPeers((*call).peers)}, api.Peers{}},
	{route{getOnly, "/v1/rollcall/peers/{name}/diff", jsonForm, withPeers((*call).diffPeer)}, api.PeerDiff{}},
	{route{post, "/v1/rollcall/peers/{name}/repair", jsonForm, withPeers(bodiless((*call).repairPeer))}, api.PeerDiff{}},
	{route{post, "/v1/rollcall/peers/{name}/pause", jsonForm, withPeers(bodiless((*call).pausePeer))}, nil},
	{route{post, "/v1/rollcall/peers/{name}/resume", jsonForm, withPeers(bodiless((*call).resumePeer))}, nil},
	{route{post, "/v1/rollcall/peers/{name}/forget", jsonForm, withPeers(bodiless((*call).forgetSender))}, nil},

	{route{get, "/v1/rollcall/sessions", jsonForm, withCoordination((*call).ownSessions)}, []api.Session{}},
	{route{get, "/v1/rollcall/sessions/{id}", jsonForm, withCoordination((*call).ownSession)}, api.Session{}},
	{route{post, "/v1/rollcall/sessions", jsonForm, withCoordination((*call).newSession)}, api.Session{}},
	{route{put, "/v1/rollcall/sessions/{id}/renew", jsonForm, withCoordination(bodiless((*call).renewOwn))}, api.Session{}},
	{route{del, "/v1/rollcall/sessions/{id}", jsonForm, withCoordination(bodiless((*call).destroyOwn))}, api.Destroyed{}},
	{route{get, "/v1/rollcall/locks", jsonForm, onPermits(kv.Lock, permitsOf.list)}, []api.Permits{}},
	{route{get, "/v1/rollcall/locks/{name}", jsonForm, onPermits(kv.Lock, permitsOf.show)}, api.Permits{}},
	{route{put, "/v1/rollcall/locks/{name}", jsonForm, onPermits(kv.Lock, permitsOf.acquire)}, api.Acquired{}},
	{route{del, "/v1/rollcall/locks/{name}", jsonForm, onPermits(kv.Lock, permitsOf.release)}, api.Released{}},
	{route{get, "/v1/rollcall/semaphores", jsonForm, onPermits(kv.Semaphore, permitsOf.list)}, []api.Permits{}},
	{route{get, "/v1/rollcall/semaphores/{name}", jsonForm, onPermits(kv.Semaphore, permitsOf.show)}, api.Permits{}},
	{route{put, "/v1/rollcall/semaphores/{name}", jsonForm, onPermits(kv.Semaphore, permitsOf.acquire)}, api.Acquired{}},
	{route{del, "/v1/rollcall/semaphores/{name}", jsonForm, onPermits(kv.Semaphore, permitsOf.release)}, api.Released{}},

	{route{get, "/healthz", jsonForm, (*call).healthz}, nil},
	{route{get, "/readyz", jsonForm, (*call).readyz}, nil},
	{route{get, statusOverridesPath, eurekaForm, viewed((*call).statusOverrides)}, nil},
	{route{get, "/", eurekaForm, (*call).dashboard}, nil},
	{route{get, "/lastn", eurekaForm, (*call).lastN}, nil},
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
		for _, rt := range eurekaRoutes {
			under.Handle(rt.path, h.handle("{base}"+rt.path, rt, v1)).Methods(rt.methods...)
		}
	}
	for _, rt := range ownRoutes {
		h.router.Handle(rt.path, h.handle(rt.path, rt.route, false)).Methods(rt.methods...)
	}
	exposed := promhttp.HandlerFor(h.config.Metrics, promhttp.HandlerOpts{})
	scraped := route{get, "/metrics", eurekaForm, func(c *call) (any, error) {
		exposed.ServeHTTP(c.w, c.r)
		return answered, nil
	}}
	h.router.Handle(scraped.path, h.handle(scraped.path, scraped, false)).Methods(scraped.methods...)
	h.routeAsIs()
}

// handle turns a route into a handler; template is the metrics' name of the route.
func (h *Handler) handle(template string, rt route, v1 bool) http.Handler {
	params := maxParams
	if rt.path == metadataPath {
		params = maxMetaParams
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a, ok := w.(*answer); ok {
			a.route = template
		}
		err := checkQuery(r.URL.RawQuery, params)
		if err == nil {
			err = h.callOf(w, r, v1).serve(rt)
		}
		if err != nil {
			h.fail(w, rt.form, err)
		}
	})
}

// serve performs a call of a route, and sends the document that answers it.
func (c *call) serve(rt route) error {
	document, err := rt.do(c)
	if err != nil {
		return err
	}
	return c.send(rt.form, document)
}

// unrouted answers requests that no route takes: 405 if one of the path takes another method. It
// finds that out by itself, because the router forgets it within a base path (mux v1.8.1, Route.Match).
func (h *Handler) unrouted(w http.ResponseWriter, r *http.Request) {
	err := error(notFound)
	if methods := allowed(h.router, r, allMethods); len(methods) > 0 {
		err = &refusal{status: http.StatusMethodNotAllowed, allow: strings.Join(methods, ", ")}
	}
	h.fail(w, formOfPath(r.URL.Path), err)
}

// allowed lists those methods that the routes of a path take, for the Allow header.
func allowed(router *mux.Router, r *http.Request, methods []string) []string {
	return slices.DeleteFunc(slices.Clone(methods), func(method string) bool {
		probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		var match mux.RouteMatch
		return !router.Match(probe, &match) || match.MatchErr != nil
	})
}

// formOfPath is how a path's API words errors when no route was found for it: Eureka's clients get
// nothing, because they decode whatever they get.
func formOfPath(path string) errorForm {
	switch {
	case strings.HasPrefix(path, "/v1/rollcall/"):
		return jsonForm
	case strings.HasPrefix(path, "/v1/"):
		return consulForm
	}
	return emptyForm
}

func stack() string { return string(debug.Stack()) }
