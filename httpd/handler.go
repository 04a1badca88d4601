package httpd

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/seed-20419f34/rollcall/internal/setting"
)

// Handler serves every route of a node. Safe for concurrent use.
type Handler struct {
	config       Config
	router       *mux.Router
	consul       *mux.Router // of the paths that are taken as they came, see takenAsIs
	appsPrefixes []string    // of the heartbeat route: each base path with /apps/
	metrics      *metrics
	documents    *documents
	limiter      *limiter
	readOnly     *readOnly // nil: there is none
	sites        *sites
	started      time.Time
	heartbeats   atomic.Pointer[heartbeats] // set by Serve
	draining     atomic.Bool                // see Drain
	watches      *watches
	budget       budget              // of requests under way
	answers      *semaphore.Weighted // bytes of the budget that answers may take
	senders      *senders
	gate         gate
}

// New checks the configuration and builds the routes. It starts nothing. Every error of the
// configuration is reported at once.
func New(c Config) (*Handler, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	h := &Handler{config: c, router: newRouter(), consul: newRouter(), started: time.Now(), gate: gate{service: c.Service, wait: c.WaitWhenEmpty}, sites: newSites(c.Hosts)}
	h.budget.limit = c.Limits.InFlightBytes
	h.answers = semaphore.NewWeighted(max(c.Limits.InFlightBytes/2, 1))
	h.senders = newSenders(c.Limits.BatchBytes)
	h.documents = newDocuments(c.Service)
	h.metrics = newMetrics(c.Metrics, c.Service, h.keptBytes)
	h.documents.built = h.metrics.built
	if c.ReadOnlyCache {
		h.readOnly = newReadOnly(c.Service, h.documents.count)
	}
	var err error
	if h.limiter, err = newLimiter(c.RateLimit, h.metrics); err != nil {
		return nil, err
	}
	h.watches = newWatches(c.Limits.Watchers, c.Metrics)
	h.routes()
	return h, nil
}

// newRouter redirects nothing: a redirected PUT would lose its body.
func newRouter() *mux.Router { return mux.NewRouter().SkipClean(true).UseEncodedPath() }

func (c Config) withDefaults() Config {
	if c.BasePaths == nil {
		c.BasePaths = DefaultBasePaths()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Cluster == nil {
		c.Cluster = alone{}
	}
	setting.Fill(&c)
	return c
}

// keptBytes is the size of all documents that are kept.
func (h *Handler) keptBytes() float64 {
	if h.readOnly == nil {
		return h.documents.bytes()
	}
	return h.documents.bytes() + h.readOnly.bytes()
}

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

// answer is a ResponseWriter that remembers what was answered, for the metrics.
type answer struct {
	http.ResponseWriter
	route  string // its template; "none" until one matched
	status int    // 0 until the header was written
	call   call   // of the route

	budget     *budget // nil: there is none
	chargeable int64   // bytes of it that may be taken when the request takes more
	charged    int64   // bytes of it that the request takes

	answers  *semaphore.Weighted // nil: the answer takes nothing of it
	reserved int64               // bytes of it, which are charged to the budget, too
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// serveRouted answers whatever is not an ordinary heartbeat.
func (h *Handler) serveRouted(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	h.gate.look()
	a := &answer{ResponseWriter: w, route: "none", budget: &h.budget, chargeable: h.budget.limit}
	defer func() {
		a.settle()
		h.recovered(a, recover())
		if a.status == 0 {
			a.status = http.StatusOK // net/http's answer to a handler that wrote nothing
		}
		h.metrics.answered(a.route, r.Method, a.status, time.Since(start))
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
		h.fail(a, formOfPath(r.URL.Path), err)
		return
	}
	h.router.ServeHTTP(a, routed)
}

// serveConsul answers requests whose path is taken as it came.
func (h *Handler) serveConsul(a *answer, r *http.Request) {
	if err := h.admitConsul(r); err != nil {
		h.fail(a, formOfPath(r.URL.Path), err)
		return
	}
	h.consul.ServeHTTP(a, r)
}

// admit checks what must hold for every request and gives its path the form that the routes have.
func (h *Handler) admit(r *http.Request) (*http.Request, error) {
	if err := checkBounds(r, maxMetaParams); err != nil {
		return nil, err
	}
	if r.ProtoMajor > 1 && r.TLS == nil {
		return nil, errPlainHTTP2
	}
	if !slices.Contains(allMethods, r.Method) {
		return nil, &refusal{status: http.StatusMethodNotAllowed, allow: strings.Join(allMethods, ", ")}
	}
	clean, err := cleanPath(r.URL)
	if err != nil {
		return nil, err
	}
	routed := new(http.Request)
	*routed = *r
	routed.URL = clean
	return routed, nil
}

var errPlainHTTP2 = badRequest("HTTP/2 is spoken over TLS only")

// checkBounds refuses a request line that is out of bounds.
func checkBounds(r *http.Request, params int) error {
	if len(r.RequestURI) > maxURIBytes {
		return errURITooLong
	}
	return checkQuery(r.URL.RawQuery, params)
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
