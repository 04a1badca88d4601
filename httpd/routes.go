package httpd

import (
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// endpoint is a handler that leaves the wording of errors to fail.
type endpoint func(w http.ResponseWriter, r *http.Request) error

// allMethods are the methods that any route has.
const allMethods = "GET, HEAD, PUT, POST, DELETE"

func knownMethod(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete:
		return true
	}
	return false
}

// routes builds the router: Eureka's resources under each base path, then everything else.
func (h *Handler) routes() {
	h.answerUnrouted(h.router)
	// The longest first: /eureka is the beginning of /eureka/v2.
	for _, base := range slices.SortedFunc(slices.Values(h.config.BasePaths), func(a, b string) int { return len(b) - len(a) }) {
		h.eurekaRoutes(base)
	}
	h.ownRoutes()
	h.consulRoutes()
}

// answerUnrouted sets what a router answers to requests that none of its routes takes.
func (h *Handler) answerUnrouted(router *mux.Router) {
	router.NotFoundHandler = http.HandlerFunc(h.unrouted)
	router.MethodNotAllowedHandler = http.HandlerFunc(h.unrouted)
}

// eurekaRoutes adds the endpoints of the protocol under one base path.
func (h *Handler) eurekaRoutes(base string) {
	h.appsPrefixes = append(h.appsPrefixes, base+"/apps/")
	v1 := strings.EqualFold(base[strings.LastIndex(base, "/")+1:], "v1")
	under := h.router.PathPrefix(base).Subrouter()
	h.answerUnrouted(under)
	add := func(path string, form errorForm, e endpoint, methods ...string) {
		params := maxParams
		if strings.HasSuffix(path, "/metadata") {
			params = maxMetaParams
		}
		under.Handle(path, h.handle("{base}"+path, params, form, e)).Methods(methods...)
	}
	read := func(path string, e readEndpoint) {
		add(path, eurekaForm, func(w http.ResponseWriter, r *http.Request) error { return e(w, r, v1) }, http.MethodGet, http.MethodHead)
	}
	read("/apps", h.cached(allApps, h.fullList))
	read("/apps/delta", h.cached(allAppsDelta, h.delta))
	read("/apps/{app}", h.cached(oneApp, h.application))
	read("/apps/{app}/{id}", h.instance)
	read("/instances/{id}", h.instanceAnywhere)
	read("/vips/{vip}", h.cached(oneVIP, h.vip))
	read("/svips/{svip}", h.cached(oneSecureVIP, h.secureVIP))
	read("/status", h.serverStatus)
	read("/serverinfo/statusoverrides", h.statusOverrides)
	add("/apps/{app}", eurekaForm, h.register, http.MethodPost)
	add("/apps/{app}/{id}", emptyForm, h.renewRouted, http.MethodPut)
	add("/apps/{app}/{id}", emptyForm, h.cancel, http.MethodDelete)
	add("/apps/{app}/{id}/status", eurekaForm, h.setStatus, http.MethodPut)
	add("/apps/{app}/{id}/status", eurekaForm, h.deleteStatus, http.MethodDelete)
	add("/apps/{app}/{id}/metadata", eurekaForm, h.updateMetadata, http.MethodPut)
	add("/peerreplication/batch", eurekaForm, h.ofBatches(batchPatience, h.batch), http.MethodPost)
	add("/asg/{asg}/status", emptyForm, h.autoScalingGroup, http.MethodPut)
}

// memberPath is the resource of one node of the cluster.
const memberPath = "/v1/rollcall/members/{name}"

// ownRoutes adds our own API and what an operator looks at.
func (h *Handler) ownRoutes() {
	get := func(path string, form errorForm, e endpoint) {
		h.router.Handle(path, h.handle(path, maxParams, form, e)).Methods(http.MethodGet, http.MethodHead)
	}
	get("/v1/rollcall/status", jsonForm, h.clusterStatus)
	get("/v1/rollcall/apps", jsonForm, h.listInstances)
	get("/v1/rollcall/events", jsonForm, h.events)
	get("/v1/rollcall/settings", jsonForm, h.settings)
	get("/v1/rollcall/self-preservation", jsonForm, h.selfPreservation)
	get("/v1/rollcall/apps/{app}/{id}/explain", jsonForm, h.explain)
	one := func(method, path string, e endpoint) {
		h.router.Handle(path, h.handle(path, maxParams, jsonForm, e)).Methods(method)
	}
	one(http.MethodPost, "/v1/rollcall/self-preservation/release", h.releasePreservation)
	one(http.MethodPost, "/v1/rollcall/self-preservation/hold", h.holdPreservation)
	one(http.MethodPut, "/v1/rollcall/apps/{app}/{id}/override", h.override)
	one(http.MethodDelete, "/v1/rollcall/apps/{app}/{id}/override", h.endOverride)
	one(http.MethodPut, "/v1/rollcall/apps/{app}/{id}/quarantine", h.quarantine)
	one(http.MethodDelete, "/v1/rollcall/apps/{app}/{id}/quarantine", h.endQuarantine)
	one(http.MethodPost, "/v1/rollcall/prune", h.prune)
	one(http.MethodDelete, memberPath, h.removeMember)
	h.peerRoutes(get, one)
	h.coordinationRoutes(get, one)
	// No HEAD: the headers of a watch say nothing, and its body has no end.
	one(http.MethodGet, "/v1/rollcall/watch", h.watch)
	get("/healthz", jsonForm, healthz)
	get("/readyz", jsonForm, h.readyz)
	get("/serverinfo/statusoverrides", eurekaForm, func(w http.ResponseWriter, r *http.Request) error {
		return h.statusOverrides(w, r, false)
	})
	get("/", eurekaForm, h.dashboard)
	get("/lastn", eurekaForm, h.lastN)
	exposed := promhttp.HandlerFor(h.config.Metrics, promhttp.HandlerOpts{})
	get("/metrics", eurekaForm, func(w http.ResponseWriter, r *http.Request) error {
		exposed.ServeHTTP(w, r)
		return nil
	})
}

// peerRoutes adds what other servers of Rollcall call, and what operators do about them.
func (h *Handler) peerRoutes(get func(path string, form errorForm, e endpoint), one func(method, path string, e endpoint)) {
	one(http.MethodPost, "/v1/rollcall/replication", h.exchange(Peers.Receive))
	one(http.MethodPost, "/v1/rollcall/replication/digest", h.exchange(Peers.Compare))
	one(http.MethodGet, "/v1/rollcall/replication/state", h.withPeers(h.replicationState))
	get("/v1/rollcall/peers", jsonForm, h.withPeers(h.peers))
	one(http.MethodGet, "/v1/rollcall/peers/{name}/diff", h.withPeers(h.diffPeer))
	one(http.MethodPost, "/v1/rollcall/peers/{name}/repair", h.withPeers(h.repairPeer))
	one(http.MethodPost, "/v1/rollcall/peers/{name}/pause", h.withPeers(h.pausePeer))
	one(http.MethodPost, "/v1/rollcall/peers/{name}/resume", h.withPeers(h.resumePeer))
	one(http.MethodPost, "/v1/rollcall/peers/{name}/forget", h.withPeers(h.forgetSender))
}

// handle turns an endpoint into a handler; template is the metrics' name of the route.
func (h *Handler) handle(template string, params int, form errorForm, e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a, ok := w.(*answer); ok {
			a.route = template
		}
		err := checkQuery(r.URL.RawQuery, params)
		if err == nil {
			err = e(w, r)
		}
		if err != nil {
			h.fail(w, form, err)
		}
	})
}

// unrouted answers requests that no route takes: 405 if one of the path takes another method. It
// finds that out by itself, because the router forgets it within a base path (mux v1.8.1, Route.Match).
func (h *Handler) unrouted(w http.ResponseWriter, r *http.Request) {
	err := error(notFound)
	if allow := h.allowed(r); allow != "" {
		err = &refusal{status: http.StatusMethodNotAllowed, allow: allow}
	}
	h.fail(w, formOfPath(r.URL.Path), err)
}

// allowed lists the methods that the routes of a path take, for the Allow header.
func (h *Handler) allowed(r *http.Request) string {
	var methods []string
	for method := range strings.SplitSeq(allMethods, ", ") {
		probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		var match mux.RouteMatch
		if h.router.Match(probe, &match) && match.MatchErr == nil {
			methods = append(methods, method)
		}
	}
	return strings.Join(methods, ", ")
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
