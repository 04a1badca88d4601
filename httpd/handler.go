// Package httpd is the HTTP face of a node: Eureka's REST protocol, Rollcall's own API under
// /v1/rollcall/, the dashboard, health and metrics, all over one [registry.Service].
//
// It routes, negotiates, bounds what it reads, maps errors to statuses and keeps ready documents per
// version of the registry. It does not know in which mode the node runs, who leads, or how an
// operation becomes durable; what it shows of the cluster it asks [Cluster] for. How documents look
// is the business of package httpd/eureka.
package httpd

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/seed-20419f34/rollcall/fsm/registry"
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

// EurekaReads says how fresh the reads of stock Eureka clients are, which cannot ask for it
// themselves (setting reads.eureka).
type EurekaReads string

// The settings of reads.eureka.
const (
	// ReadsLinearizable, the default: 503 when there is no quorum; stock clients then go on with
	// what they have.
	ReadsLinearizable EurekaReads = "linearizable"
	// ReadsStaleWithoutQuorum: linearizable, and without a quorum what this node has, labelled stale.
	ReadsStaleWithoutQuorum EurekaReads = "stale-without-quorum"
	// ReadsStale: always what this node has.
	ReadsStale EurekaReads = "stale"
)

// Config is what a Handler needs. Service is required; every other field has a default. The fields with a key are settings of
// the node (see package setting).
type Config struct {
	// Service is the registry.
	Service registry.Service
	// Cluster tells about the nodes. Nil: only this node is shown.
	Cluster Cluster
	// Members changes the nodes. Nil: they cannot be changed here, and the routes for it answer 501.
	Members Members
	// Coordination serves Consul's API, and sessions, keys and locks. Nil: the node has no consensus, and
	// their routes answer 501.
	Coordination Coordination
	// Peers is the replication to other servers. Nil: there is none, and its routes answer 501.
	Peers Peers
	// EurekaSender names the Eureka server that sends from an identity (DiscoveryIdentity-Id, may be empty)
	// and an address (host:port). Nil: all are "eureka".
	EurekaSender func(identity, address string) string
	// Node is the name of this node, Datacenter that of its datacenter; Version that of the program.
	// They are shown, nothing more.
	Node, Datacenter, Version string
	// ReapCritical is at least a minute, as in Consul.
	ReapCritical time.Duration `key:"checks.deregister-critical-after" default:"72h" min:"1m" zero:"never" help:"a service whose check has been critical for so long is removed, where the check does not say (DeregisterCriticalServiceAfter)"`
	// RefuseProbe says in words why a check's probe of a service (both nil: of a node) may not be registered;
	// "": it may. Nil: all may.
	RefuseProbe func(p *registry.Probe, s *registry.CatalogService, i *registry.Instance) string
	// WithoutConsensus: each node orders operations and ends leases by itself, by a lease clock that
	// always runs, and there is no leader. It decides what people are told, nothing more.
	WithoutConsensus bool
	// WaitWhenEmpty is how long fetches are answered 403.
	WaitWhenEmpty time.Duration `key:"replication.wait-when-empty" default:"0s" min:"0s" help:"mode ap: how long lists are refused after a start that found no instance anywhere (waitTimeInMsWhenSyncEmpty)"`
	// Reads is the freshness of Eureka reads that carry no consistency parameter.
	Reads EurekaReads `key:"reads.eureka" default:"linearizable" words:"linearizable stale-without-quorum stale" help:"what Eureka clients read"`
	// BasePaths are where Eureka's resources live. Nil: DefaultBasePaths. A base whose last segment
	// is v1, in any case, serves version 1 of the protocol, every other one version 2.
	BasePaths []string
	// Hosts are the names under which the node is served, beside localhost and addresses; a request
	// to another one is answered 421, see sites. Nil: any name is served.
	Hosts []string
	// Log receives what is not the client's business. Nil: discarded.
	Log *slog.Logger
	// Metrics is where the package's metrics are registered and what /metrics shows. Nil: a registry
	// of its own.
	Metrics *prometheus.Registry
	// Limits bounds what a request may cost.
	Limits Limits
	// RateLimit limits fetches of the registry. Zero: nothing is limited.
	RateLimit RateLimit `reload:"yes"`
	// ReadOnlyCache: reads of lists that do not ask for a consistency are answered up to 30 s late, as
	// upstream's servers do, and labelled stale.
	ReadOnlyCache bool `key:"eureka-compat.read-only-cache" help:"Eureka clients read documents that are up to 30 s old (useReadOnlyResponseCache, responseCacheUpdateIntervalMs)"`
}

// DefaultBasePaths are those of Netflix's and Spring Cloud's servers.
func DefaultBasePaths() []string { return []string{"/eureka/v2", "/eureka/v1", "/eureka", "/v2"} }

// Limits bounds what requests, instances and connections may cost. A zero field means its default, if it has one.
type Limits struct {
	RegisterBytes  int64 `key:"limits.register-bytes" default:"262144" min:"1" help:"largest body of a registration, in bytes after decompression; 413 above it"`
	IgnoredBytes   int64 `key:"limits.ignored-bytes" default:"65536" min:"1" help:"largest body of a call that has none by the protocol, in bytes; 413 above it"`
	BatchBytes     int64 `key:"limits.batch-bytes" default:"8388608" min:"1" help:"largest replication batch, in bytes after decompression; 413 above it"`
	InFlightBytes  int64 `key:"limits.in-flight-bytes" default:"268435456" min:"1" help:"memory, in bytes, for the bodies of requests under way and what is decoded from them (8 for each byte of a body), and for answers of 64 KiB and more that are built as a whole (4 for each byte); one more is answered 503, an answer after 5s of waiting. Replication batches take half at most, and so do answers"`
	InstancesTotal int   `key:"limits.instances-total" default:"1000000" min:"1" help:"most instances of all applications; a new one above it is answered 507"`
	InstancesInApp int   `key:"limits.instances-in-app" default:"10000" min:"1" help:"most instances of one application; a new one above it is answered 429"`
	Watchers       int   `key:"limits.watchers" default:"10000" min:"1" help:"most watches at a time, long polls included; a further one is answered 503"`

	// Those of the listener, see NewConnections.
	Connections int `key:"limits.connections" default:"10000" min:"1" help:"most HTTP connections at a time; a further one takes the place of the one idle for longest, of the address that holds most"`
	PerAddress  int `key:"limits.connections-per-address" min:"0" help:"most HTTP connections of one address (of IPv6: /64), which a balancer or NAT is too; a further one takes the place of its longest idle one; 0: any number"`
}

// Validate reports every mistake at once.
func (c *Config) Validate() error {
	var errs []error
	if c.Service == nil {
		errs = append(errs, errors.New("http: Service is nil; a handler needs a registry"))
	}
	for _, base := range c.BasePaths {
		if !strings.HasPrefix(base, "/") || strings.HasSuffix(base, "/") || strings.Contains(base, "//") {
			errs = append(errs, fmt.Errorf("http: BasePaths has %q; a base path starts with a slash, does not end in one and has no empty segment", base))
		}
	}
	return errors.Join(append(errs, setting.Check(c), c.RateLimit.validate())...)
}
