package web

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/audit"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// Node is what the routes of every API share: the registry, what is known of the cluster, and the bounds on all
// requests together. Safe for concurrent use.
type Node struct {
	Config
	Started  time.Time
	Draining atomic.Bool // the node is shutting down: every response is the last on its connection
	Watches  *Watches
	// ErrorPage shows an error to a person; r is nil if it is unknown what was asked for. Set before requests come.
	ErrorPage func(w http.ResponseWriter, r *http.Request, status int, text string)

	logged      logged // calls that failed or were slow
	access      *control
	accessKnown atomic.Bool // see knowsAccess
	held        held        // calls that wait
	budget      budget      // for the memory of requests under way
	shared      *sharedDocuments
	limits      atomic.Pointer[Limits]
	responses   atomic.Pointer[pool]
	senders     *senders
	operations  *prometheus.CounterVec // by action, origin and outcome
	acts        *prometheus.CounterVec // by act
	// by outcome; renewals are the most frequent operation, so they are looked up once
	clientRenewals, peerRenewals [renewOutcomes]prometheus.Counter
}

// pool holds the bytes of the budget that responses may take.
type pool struct {
	*semaphore.Weighted
	size int64
}

// Config is what NewNode needs. Every field without a remark must be set.
type Config struct {
	World        *world.World // nil means the machine's
	Service      registry.Service
	Cluster      Cluster
	Coordination kv.Service // nil if the node has no consensus
	// Cut returns how long a Eureka server may be silent before its link counts as cut; nil if nothing is replicated.
	Cut func(server string) time.Duration
	// Name is the name of this node, Datacenter that of its datacenter, and Version the program's. They are only
	// shown.
	Name, Datacenter, Version string
	WithoutConsensus          bool // each node decides on its own, without a leader
	Reads                     EurekaReads
	Limits                    Limits
	Access                    AccessConfig
	Audit                     *audit.Log    // nil if nothing is recorded
	ConnectionLife            time.Duration // time limit of connections over TLS
	Log                       *slog.Logger
	Metrics                   prometheus.Registerer
}

// NewNode makes a Node. It starts nothing.
func NewNode(c Config) *Node {
	n := &Node{Config: c, Started: time.Now(), Watches: newWatches(c.Metrics), senders: new(senders), shared: newSharedDocuments(c.Metrics)}
	n.SetLimits(c.Limits)
	c.Access.World = c.World
	n.access = &control{
		AccessConfig: c.Access,
		denials:      NewCounters(c.Metrics, "rollcall_auth_denied_total", "Calls refused for lack of permission, by principal, resource and verb.", "principal", "resource", "verb"),
		wouldDeny:    NewCounters(c.Metrics, "rollcall_auth_would_deny_total", "Calls that were allowed but that mode on, a later level or a later release will refuse, by principal, resource and verb.", "principal", "resource", "verb"),
	}
	n.held.node = n
	n.operations = NewCounters(c.Metrics, "rollcall_registry_operations_total", "Registry operations, by action, sender and outcome.", "action", "origin", "outcome")
	for outcome, name := range OutcomeNames[:renewOutcomes] {
		n.clientRenewals[outcome] = n.operations.WithLabelValues("renew", "client", name)
		n.peerRenewals[outcome] = n.operations.WithLabelValues("renew", "replication", name)
	}
	if c.Audit != nil {
		c.Metrics.MustRegister(c.Audit.Lost)
	}
	n.acts = NewCounters(c.Metrics, "rollcall_acts_total", "Operators' actions that this node performed.", "act")
	for _, act := range acts { // a series that first appears with a 1 has not risen for a query that looks for increases
		n.acts.WithLabelValues(act)
	}
	c.Metrics.MustRegister(
		yesOrNo("rollcall_ready", "1 while /readyz answers 200.", func() bool { return n.Service.Health().Ready && !n.Draining.Load() }),
		yesOrNo("rollcall_quorum", "1 while the node is connected to a leader with a majority; in mode ap while it is ready.", func() bool { return n.Service.Health().Quorum }))
	return n
}

// yesOrNo returns a gauge that is 1 while holds returns true, and else 0.
func yesOrNo(name, help string, holds func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if holds() {
			return 1
		}
		return 0
	})
}

// Used returns the number of watches, and the bytes that the requests under way take.
func (n *Node) Used() (watchers, inFlightBytes int64) {
	return n.Watches.running.Load(), n.budget.taken.Load()
}

// Limits returns the current limits.
func (n *Node) Limits() *Limits { return n.limits.Load() }

// SetLimits replaces the limits. They apply from now on; requests under way end by the limits that they began with.
func (n *Node) SetLimits(l Limits) {
	before := n.limits.Swap(&l)
	n.Watches.limit.Store(int64(l.Watchers))
	if before == nil || before.InFlightBytes != l.InFlightBytes {
		n.budget.limit.Store(l.InFlightBytes)
		n.shared.most.Store(l.InFlightBytes / sharedPart)
		most := max(l.InFlightBytes/2, 1)
		n.responses.Store(&pool{semaphore.NewWeighted(most), most})
	}
	if before == nil || before.BatchBytes != l.BatchBytes {
		n.senders.setShare(l.BatchBytes)
	}
}

// ClusterNow returns what this node knows of its cluster, with its own part filled in.
func (n *Node) ClusterNow(ctx context.Context) api.Status {
	s := n.Cluster.Status(ctx)
	health := n.Service.Health()
	s.Node, s.Datacenter, s.Version = n.Name, n.Datacenter, n.Version
	s.Ready, s.Quorum = health.Ready && !n.Draining.Load(), health.Quorum
	if s.Nodes == nil {
		s.Nodes = []api.NodeStatus{}
	}
	return s
}

// Cluster is what this node knows about the nodes of its cluster.
type Cluster interface {
	// Status answers from memory where it can; the context bounds its calls to other nodes. Fields that it cannot
	// learn in time stay empty. ClusterNow fills in Node, Datacenter, Version, Ready and Quorum.
	Status(ctx context.Context) api.Status
}

// Limits bounds what requests, instances and connections may cost. A zero field means its default, if it has one.
type Limits struct {
	RegisterBytes  int64 `key:"limits.register-bytes" default:"262144" min:"1" help:"largest body of a registration, in bytes after decompression; 413 above it"`
	IgnoredBytes   int64 `key:"limits.ignored-bytes" default:"65536" min:"1" help:"largest body, in bytes, of a call that needs none; 413 above it"`
	BatchBytes     int64 `key:"limits.batch-bytes" default:"8388608" min:"1" help:"largest replication batch, in bytes after decompression; 413 above it"`
	InFlightBytes  int64 `key:"limits.in-flight-bytes" default:"268435456" min:"1" help:"memory, in bytes, for request bodies in flight and what is decoded from them (8 for each byte of a body), and for responses of 64 KiB and more that are built as a whole (4 for each byte); a request beyond it gets 503, a response after waiting 5s. Replication batches use at most half of it, and so do responses. A quarter as much on top keeps finished lists for the next request"`
	InstancesTotal int   `key:"limits.instances-total" default:"1000000" min:"1" help:"most instances of all applications; registering one more gets 507"`
	InstancesInApp int   `key:"limits.instances-in-app" default:"10000" min:"1" help:"most instances of one application; registering one more gets 429"`
	Watchers       int   `key:"limits.watchers" default:"10000" min:"1" help:"most watches at a time, long polls included; one more gets 503. Dashboard pages may have a tenth as many streams on top"`

	// Limits of the listener, see NewConnections.
	Connections int `key:"limits.connections" default:"10000" min:"1" help:"most HTTP connections at a time; a new one beyond it replaces the longest-idle one of the address that holds most"`
	PerAddress  int `key:"limits.connections-per-address" min:"0" help:"most HTTP connections of one address (IPv6: one /64), which may be a balancer or NAT; a new one beyond it replaces that address's longest-idle one; 0: no limit"`
}

// NewCounters registers counters by labels.
func NewCounters(reg prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	reg.MustRegister(c)
	return c
}

// StaleView returns this node's own view, which a Service always has; nil only if it breaks that promise.
func StaleView(s registry.Service) *registry.View {
	v, err := s.View(context.Background(), registry.Stale)
	if err != nil {
		return nil
	}
	return v
}
