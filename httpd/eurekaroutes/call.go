package eurekaroutes

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Config is what the routes need beside a web.Node.
type Config struct {
	// Sender names the Eureka server behind an identity (DiscoveryIdentity-Id, may be empty) and an address
	// (host:port). If nil, every server is "eureka".
	Sender func(identity, address string) string
	// Refused records why an item that a server (from) replicated is refused, or, with an empty why, that it was
	// accepted. A key without an application stands for a whole batch. If nil, nothing is recorded.
	Refused func(key registry.Key, what, from, why string)
	// WaitWhenEmpty is how long fetches are refused after a start that found no instance anywhere.
	WaitWhenEmpty time.Duration
	// ReadOnlyCache answers reads of lists without a consistency parameter with responses up to 30 s old.
	ReadOnlyCache bool
}

// Eureka serves the protocol. It is safe for concurrent use.
type Eureka struct {
	*web.Node
	config    Config
	documents *documents
	readOnly  *readOnly                 // nil without a read-only cache
	opens     atomic.Pointer[time.Time] // when fetches are let in; nil until the first request to the loaded registry
	moves     moves

	contradictions prometheus.Counter
}

// call is a call of the protocol.
type call struct {
	*web.Call
	*Eureka
}

type endpoint func(c call) (document any, err error)

type route web.Route[call]

// New makes the routes' state. It starts nothing.
func New(n *web.Node, c Config) *Eureka {
	if c.Refused == nil {
		c.Refused = func(registry.Key, string, string, string) {}
	}
	e := &Eureka{Node: n, config: c, documents: newDocuments(n.Service)}
	e.documents.built = web.NewCounters(n.Metrics, "rollcall_http_documents_built_total", "Cached documents built, by kind and form.", "kind", "form")
	e.contradictions = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rollcall_http_contradicting_heartbeats_total", Help: "Heartbeats whose status contradicts the registration with the same timestamp.",
	})
	e.moves.of = map[registry.Key]move{}
	e.moves.total = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rollcall_http_moved_registrations_total", Help: "Registrations that give another address than the instance's live lease has.",
	})
	n.Metrics.MustRegister(e.contradictions, e.moves.total)
	if c.ReadOnlyCache {
		e.readOnly = &readOnly{world: n.World, began: time.Now(), service: n.Service, built: e.documents.count, responses: map[responseKey]*cachedResponse{}}
	}
	n.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_http_documents_bytes", Help: "Bytes of cached documents."}, e.keptBytes))
	return e
}

// KeptResponses returns how many responses the read-only cache keeps.
func (e *Eureka) KeptResponses() int { return e.readOnly.len() }

// keptBytes returns the size of all kept documents.
func (e *Eureka) keptBytes() float64 {
	if e.readOnly == nil {
		return e.documents.bytes()
	}
	return e.documents.bytes() + e.readOnly.bytes()
}
