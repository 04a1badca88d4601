// Package httpd is the HTTP face of a node: Eureka's REST protocol, Rollcall's own API under
// /v1/rollcall/, the dashboard, health and metrics, all over one [registry.Service].
//
// It routes, negotiates, bounds what it reads, maps errors to statuses and keeps ready documents per
// version of the registry. It does not know in which mode the node runs, who leads, or how an
// operation becomes durable; what it shows of the cluster it asks [Cluster] for. How documents look
// is the business of package httpd/eureka.
package httpd

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"

	"github.com/seed-20419f34/rollcall/httpd/eurekaroutes"
	"github.com/seed-20419f34/rollcall/httpd/ownroutes"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Handler serves every route of a node. Safe for concurrent use.
type Handler struct {
	*web.Node
	config       Config
	router       *mux.Router
	consul       *mux.Router // of the paths that are taken as they came, see takenAsIs
	appsPrefixes []string    // of the heartbeat route: each base path with /apps/
	eureka       *eurekaroutes.Eureka
	own          *ownroutes.Own
	metrics      *metrics
	limiter      *limiter
	sites        *sites
	heartbeats   atomic.Pointer[heartbeats] // set by Serve
	draining     atomic.Bool                // see Drain
}

// New checks the configuration and builds the routes. It starts nothing. Every error of the
// configuration is reported at once.
func New(c Config) (*Handler, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	h := &Handler{
		Node: web.NewNode(c.node()), config: c, router: newRouter(), consul: newRouter(),
		sites: newSites(c.Hosts),
	}
	h.eureka = eurekaroutes.New(h.Node, eurekaroutes.Config{Sender: c.EurekaSender, WaitWhenEmpty: c.WaitWhenEmpty, ReadOnlyCache: c.ReadOnlyCache})
	h.own = ownroutes.New(h.Node, ownroutes.Config{Members: c.Members, Peers: c.Peers})
	h.metrics = newMetrics(c.Metrics, c.Service)
	var err error
	if h.limiter, err = newLimiter(c.RateLimit, h.metrics); err != nil {
		return nil, err
	}
	h.routes()
	return h, nil
}

// newRouter redirects nothing: a redirected PUT would lose its body.
func newRouter() *mux.Router { return mux.NewRouter().SkipClean(true).UseEncodedPath() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	if err := h.sites.check(r); err != nil {
		h.turnAway(w, r, err)
		return
	}
	if r.Method == http.MethodPut {
		if app, id, ok := h.matchRenew(r.URL); ok {
			h.serveRenew(w, r, app, id)
			return
		}
	}
	h.serveRouted(w, r)
}

// Drain makes every further answer say that it is the last one of its connection. It comes some time
// before a shutdown, so that clients go elsewhere by themselves.
func (h *Handler) Drain() { h.draining.Store(true) }

// serveRouted answers whatever is not an ordinary heartbeat.
func (h *Handler) serveRouted(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	h.eureka.ObserveLoad()
	a := h.NewResponse(w)
	defer func() {
		a.Release()
		h.recovered(a, recover())
		if a.Status == 0 {
			a.Status = http.StatusOK // net/http's answer to a handler that wrote nothing
		}
		h.metrics.answered(a.Route, r.Method, a.Status, time.Since(start))
	}()
	if takenAsIs(r.URL.EscapedPath()) {
		h.serveConsul(a, r)
		return
	}
	routed, err := h.admit(r)
	if err == nil {
		err = h.limit(a, r, routed)
	}
	if err != nil {
		h.Fail(a, web.FormOfPath(r.URL.Path), err)
		return
	}
	h.router.ServeHTTP(a, routed)
}

// serveConsul answers requests whose path is taken as it came.
func (h *Handler) serveConsul(a *web.Response, r *http.Request) {
	if err := h.admitConsul(r); err != nil {
		h.Fail(a, web.FormOfPath(r.URL.Path), err)
		return
	}
	h.consul.ServeHTTP(a, r)
}

// admit checks what must hold for every request and gives its path the form that the routes have.
func (h *Handler) admit(r *http.Request) (*http.Request, error) {
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

// checkBounds refuses a request line that is out of bounds.
func checkBounds(r *http.Request, params int) error {
	if len(r.RequestURI) > web.MaxURIBytes {
		return web.ErrURITooLong
	}
	return web.CheckQuery(r.URL.RawQuery, params)
}

// recovered ends a handler that panicked: 500 without a text, and a line in the log.
func (h *Handler) recovered(w http.ResponseWriter, cause any) {
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler {
		panic(cause) // net/http's own way to drop a connection
	}
	h.metrics.panics.Inc()
	h.config.Log.Error("handler panicked", "cause", cause, "stack", stack())
	w.WriteHeader(http.StatusInternalServerError)
}

// NewServer returns a server for addr with the bounds that every listener of a node has: a client
// that sends or reads too slowly, or sends too large a header, is cut off. Nothing is started.
// A nil log discards what net/http reports of broken connections.
func NewServer(addr string, h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &http.Server{
		Addr:              addr,
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100}, // spoken over TLS only
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// net/http adds 4096 bytes of slack of its own to the limit that it is given.
const maxHeaderBytes = 16<<10 - 4096
