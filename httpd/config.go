package httpd

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

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
