// Package httpd is the HTTP face of a node: Eureka's REST protocol, Rollcall's own API under /v1/rollcall/,
// Consul's API, the dashboard, health and metrics, all over one [registry.Service].
//
// It composes: the endpoints are in the packages eurekaroutes, own, consul and dashboard, what
// they share in package web, and the documents in the packages eureka, api and consul, which clients import
// too. httpd does not know the mode that the node runs in, which node leads, or how an operation becomes durable;
// for the state of the cluster it asks [web.Cluster]. Its files:
//
//	config.go      what a node gives its handler
//	handler.go     a request's way to its route, and heartbeats, which need no router
//	routes.go      the routers, and the responses to requests that no route takes
//	admission.go   what must hold for every request
//	sites.go       the web pages and names under which requests are served
//	ratelimit.go   the limits of fetches
//	metrics.go     what is counted of every request, and of the registry's instances
//	heartbeats.go  connections that carry heartbeats, read without net/http
//	plainbeat.go   heartbeats and their responses in bytes
//	connections.go the number of connections
//	admin.go       the socket in the data directory
package httpd

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/dashboard"
	"github.com/seed-20419f34/rollcall/httpd/eurekaroutes"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Handler serves every route of a node. It is safe for concurrent use.
type Handler struct {
	node         *web.Node
	config       Config
	router       *mux.Router
	verbatim     *mux.Router // for the paths that are taken verbatim, see isVerbatim
	appsPrefixes []string    // of the heartbeat route: each base path with /apps/ appended
	eureka       *eurekaroutes.Eureka
	own          *own.Own
	dashboard    *dashboard.Dashboard
	metrics      *metrics
	limiter      *limiter
	sites        *sites
	heartbeats   atomic.Pointer[heartbeats] // set by Serve
}

// New checks the configuration and builds the routes. It starts nothing. It reports every error of the
// configuration at once.
func New(c Config) (*Handler, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	h := &Handler{
		node: web.NewNode(c.node()), config: c, router: newRouter(), verbatim: newRouter(),
		sites: newSites(c.Hosts),
	}
	h.eureka = eurekaroutes.New(h.node, eurekaroutes.Config{Sender: c.EurekaSender, Refused: c.EurekaRefused, WaitWhenEmpty: c.WaitWhenEmpty, ReadOnlyCache: c.ReadOnlyCache})
	h.own = own.New(h.node, own.Config{Moved: h.eureka.Moved, Members: c.Members, Upgrade: c.Upgrade, Debug: c.Debug, Peers: c.Peers, LogLevel: c.LogLevel, Snapshots: c.Snapshots, JudgeProbe: c.JudgeProbe})
	h.metrics = newMetrics(c.Metrics, c.Service, c.MetricsApps)
	h.limiter = newLimiter(c.RateLimit, h.metrics)
	h.dashboard = dashboard.New(h.node, dashboard.Config{
		Peers: h.own.PeerStatus, Moved: h.eureka.Moved, Writes: h.metrics.writes, Upkeep: func() dashboard.Upkeep { return upkeep(c.Metrics) },
		Members: c.Members != nil, Acts: c.Acts, Loopback: c.Hosts != nil,
		// An API call that a page makes for its reader passes every check of a request except that of the origin, which
		// the page's own request has passed.
		Do: func(w http.ResponseWriter, r *http.Request) {
			h.serveRouted(w, r.WithContext(context.WithValue(r.Context(), ofPage{}, true)))
		},
	})
	h.routes()
	return h, nil
}

// Run keeps the dashboard's data up to date until ctx ends: without it the pages wait for the other nodes and have no
// history.
func (h *Handler) Run(ctx context.Context) error { return h.dashboard.Run(ctx) }

// newRouter returns a router that redirects nothing: a redirected PUT would lose its body.
func newRouter() *mux.Router { return mux.NewRouter().SkipClean(true).UseEncodedPath() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.node.IsLast(r) {
		w.Header().Set("Connection", "close")
	}
	if err := h.sites.check(r); err != nil {
		form := web.EurekaForm // responds in words: no client of a protocol gets here
		if web.FormOfPath(r.URL.Path) == web.JSONForm {
			form = web.JSONForm
		}
		start := time.Now()
		a := h.node.NewResponse(w, r)
		defer a.Release()
		h.node.Fail(a, form, err)
		h.metrics.countResponse(a.Route, r.Method, a.Status, time.Since(start))
		return
	}
	if r.Method == http.MethodPut {
		if app, id, ok := h.matchRenew(r.URL); ok {
			h.takeOver(w, r, h.beat(w, r, app, id, nil))
			return
		}
	}
	h.serveRouted(w, r)
}

// Heartbeats are most of a node's work, so the common ones are recognized without the router. A path with anything
// unusual (escapes that hide a slash, empty segments, characters that need a check) is left to the router, which ends
// in the same code.

// matchRenew returns the names in the path of an ordinary heartbeat.
func (h *Handler) matchRenew(u *url.URL) (app, id string, ok bool) {
	if u.RawPath != "" {
		return "", "", false
	}
	return matchPlain(u.Path, h.appsPrefixes)
}

// beat responds to one heartbeat and returns the status of the response. s belongs to a taken-over connection, or is
// nil.
func (h *Handler) beat(w http.ResponseWriter, r *http.Request, app, id string, s *web.Standing) (status int) {
	start := time.Now()
	status = http.StatusInternalServerError
	var err error
	var request string // the request id; most heartbeats have none, because it would cost more than the rest
	if given := r.Header[web.RequestIDHeader]; given != nil {
		request = web.RequestID(r)
		w.Header().Set(web.RequestIDHeader, request)
	}
	defer func() {
		h.recovered(w, recover())
		took := time.Since(start)
		h.metrics.countRenewResponse(status, took)
		if status >= http.StatusInternalServerError || took > time.Second {
			h.node.LogEnded(r, web.Ended{ID: request, Route: renewRoute, Status: status, Took: took, Err: err})
		}
	}()
	eurekaroutes.PresetMediaType(w.Header(), r)
	err = checkBounds(r, web.MaxParams)
	if err == nil {
		status, err = h.eureka.Renew(w, r, registry.NewKey(app, id), s)
	}
	if err != nil {
		status = web.RefusalOf(err).Status
		h.node.Fail(w, web.EmptyForm, err)
	}
	return status
}

// serveRouted responds to every request that is not an ordinary heartbeat.
func (h *Handler) serveRouted(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	h.eureka.ObserveLoad()
	a := h.node.NewResponse(w, r)
	defer func() {
		a.Release()
		h.recovered(a, recover())
		if a.Status == 0 {
			a.Status = http.StatusOK // net/http's response for a handler that wrote nothing
		}
		took := time.Since(start)
		h.metrics.countResponse(a.Route, r.Method, a.Status, took)
		h.node.LogEnded(r, web.Ended{ID: a.ID, Route: a.Route, Status: a.Status, Took: took, Waited: a.Waited, Err: a.Err})
	}()
	cut, err := consul.CutAgent(r)
	if err != nil {
		h.node.Fail(a, web.ConsulForm, err)
		return
	}
	router, routed := h.router, cut
	if isVerbatim(cut.URL.EscapedPath()) {
		router, err = h.verbatim, admitVerbatim(cut)
	} else if routed, err = admit(cut); err == nil {
		err = h.limit(a, cut, routed)
	}
	if err != nil {
		h.node.Fail(a, web.FormOfPath(cut.URL.Path), err)
		return
	}
	router.ServeHTTP(a, routed)
}

// limit refuses a fetch that the buckets have no token for. A request that is refused anyway takes no token. routed is
// the request as the routes see it, r as it came.
func (h *Handler) limit(a *web.Response, r, routed *http.Request) error {
	t := targetOf(r.Method, singleSlashes(r.URL.EscapedPath()))
	under := func(base string) bool { return strings.HasPrefix(routed.URL.Path, base+"/") }
	if t == notLimited || !slices.ContainsFunc(h.config.BasePaths, under) || !h.node.IsKnown(r) || !h.limiter.refuses(t, r.Header) {
		return nil
	}
	a.Route = fetches[t].route
	return errRateLimited
}

// recovered ends a handler that panicked, with a 500 without a text and a line in the log.
func (h *Handler) recovered(w http.ResponseWriter, cause any) {
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler {
		panic(cause) // net/http's own way to drop a connection
	}
	h.metrics.panics.Inc()
	h.config.Log.Error("handler panicked", "request", w.Header().Get(web.RequestIDHeader), "cause", cause, "stack", string(debug.Stack()))
	w.WriteHeader(http.StatusInternalServerError)
}

// SetRateLimit replaces the limiter's settings while it is running.
func (h *Handler) SetRateLimit(settings RateLimit) { h.limiter.set(settings) }

// AuthMode returns the mode of access control in force.
func (h *Handler) AuthMode() access.Mode { return h.node.AccessMode() }

// SetLimits replaces the limits of requests, instances and watches while the handler is running. They apply from now
// on.
func (h *Handler) SetLimits(l web.Limits) { h.node.SetLimits(l) }

// Limits returns the current limits.
func (h *Handler) Limits() web.Limits { return *h.node.Limits() }

// Used returns the number of watches and the bytes that the requests under way take.
func (h *Handler) Used() (watchers, inFlightBytes int64) { return h.node.Used() }

// Readiness reports whether the node is ready, and what it lacks; see web.Node.
func (h *Handler) Readiness() (ready bool, sentence string) { return h.node.Readiness() }

// Drain makes every further response announce that it is the last on its connection. Call it some time before a
// shutdown, so that clients move to other nodes on their own.
func (h *Handler) Drain() { h.node.Draining.Store(true) }

// NewServer returns a server for addr with the bounds that every listener of a node has: a client that sends
// or reads too slowly, or sends too large a header, is cut off. It starts nothing. A nil log discards what
// net/http reports of broken connections.
func NewServer(addr string, h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &http.Server{
		Addr:              addr,
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       web.WithLife,
		// HTTP/2 is only used over TLS. There WriteTimeout only resets the stream, which itself needs a write: if the
		// client reads nothing, neither the stream nor the connection would end.
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: writeTimeout},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

const writeTimeout = 30 * time.Second

// net/http adds 4096 bytes of slack to the limit that it is given.
const maxHeaderBytes = 16<<10 - 4096
