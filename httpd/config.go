package httpd

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// EurekaReads says how fresh the reads of stock Eureka clients are, which cannot ask for it
// themselves (setting reads.eureka).
type EurekaReads uint8

// The settings of reads.eureka.
const (
	// ReadsLinearizable, the default: 503 when there is no quorum; stock clients then go on with
	// what they have.
	ReadsLinearizable EurekaReads = iota
	// ReadsStaleWithoutQuorum: linearizable, and without a quorum what this node has, labelled stale.
	ReadsStaleWithoutQuorum
	// ReadsStale: always what this node has.
	ReadsStale
)

var eurekaReadsNames = [...]string{
	ReadsLinearizable:       "linearizable",
	ReadsStaleWithoutQuorum: "stale-without-quorum",
	ReadsStale:              "stale",
}

// String returns the word used in settings.
func (r EurekaReads) String() string {
	if int(r) < len(eurekaReadsNames) {
		return eurekaReadsNames[r]
	}
	return fmt.Sprintf("EurekaReads(%d)", uint8(r))
}

// ParseEurekaReads is the inverse of String.
func ParseEurekaReads(word string) (EurekaReads, bool) {
	for i, name := range eurekaReadsNames {
		if name == word {
			return EurekaReads(i), true
		}
	}
	return 0, false
}

// Config is what a Handler needs. Service is required; every other field has a default.
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
	// ReapCritical is how long a service registered through Consul's agent API may be critical before it is
	// removed, where its check does not say (DeregisterCriticalServiceAfter). Zero: for ever.
	ReapCritical time.Duration
	// RefuseProbe says in words why a check's probe of a service (both nil: of a node) may not be registered;
	// "": it may. Nil: all may.
	RefuseProbe func(p *registry.Probe, s *registry.CatalogService, i *registry.Instance) string
	// WithoutConsensus: each node orders operations and ends leases by itself, by a lease clock that
	// always runs, and there is no leader. It decides what people are told, nothing more.
	WithoutConsensus bool
	// WaitWhenEmpty is how long fetches are answered 403 after the node became ready with an empty
	// registry (upstream: waitTimeInMsWhenSyncEmpty). Zero: not at all.
	WaitWhenEmpty time.Duration
	// Reads is the freshness of Eureka reads that carry no consistency parameter.
	Reads EurekaReads
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
	RateLimit RateLimit
	// ReadOnlyCache: reads of lists that do not ask for a consistency are answered up to 30 s late, as
	// upstream's servers do, and labelled stale.
	ReadOnlyCache bool
}

// DefaultBasePaths are those of Netflix's and Spring Cloud's servers.
func DefaultBasePaths() []string { return []string{"/eureka/v2", "/eureka/v1", "/eureka", "/v2"} }

// Limits bounds requests. A zero field means its default.
type Limits struct {
	RegisterBytes  int64 // body of a registration, decoded; default 256 KiB, 413 above
	IgnoredBytes   int64 // body of a call that has none by the protocol (clients send {}); default 64 KiB, 413 above
	BatchBytes     int64 // body of a replication batch, decoded; default 8 MiB, 413 above
	InstancesTotal int   // instances in the registry; default 1,000,000; a new one above it is answered 507
	InstancesInApp int   // instances of one application; default 10,000; a new one above it is answered 429
	InFlightBytes  int64 // memory of the bodies of requests under way and of what is decoded from them; default 256 MiB, 503 above
	Watchers       int   // watches under way on this node, long polls included; default 10,000; one more is answered 503
}

func (l Limits) withDefaults() Limits {
	return Limits{
		RegisterBytes:  orDefault(l.RegisterBytes, 256<<10),
		IgnoredBytes:   orDefault(l.IgnoredBytes, 64<<10),
		BatchBytes:     orDefault(l.BatchBytes, 8<<20),
		InstancesTotal: orDefault(l.InstancesTotal, 1_000_000),
		InstancesInApp: orDefault(l.InstancesInApp, 10_000),
		InFlightBytes:  orDefault(l.InFlightBytes, 256<<20),
		Watchers:       orDefault(l.Watchers, 10_000),
	}
}

func orDefault[T int | int64](value, def T) T {
	if value == 0 {
		return def
	}
	return value
}

// Validate reports every mistake at once.
func (c *Config) Validate() error {
	var errs []error
	if c.Service == nil {
		errs = append(errs, errors.New("http: Service is nil; a handler needs a registry"))
	}
	if int(c.Reads) >= len(eurekaReadsNames) {
		errs = append(errs, fmt.Errorf("http: Reads is %d; want one of %s", c.Reads, strings.Join(eurekaReadsNames[:], ", ")))
	}
	if c.ReapCritical < 0 {
		errs = append(errs, fmt.Errorf("http: ReapCritical is %v; want 0 for never, or more", c.ReapCritical))
	}
	if c.WaitWhenEmpty < 0 {
		errs = append(errs, fmt.Errorf("http: WaitWhenEmpty is %v; want 0 for no wait, or more", c.WaitWhenEmpty))
	}
	for _, base := range c.BasePaths {
		if !strings.HasPrefix(base, "/") || strings.HasSuffix(base, "/") || strings.Contains(base, "//") {
			errs = append(errs, fmt.Errorf("http: BasePaths has %q; a base path starts with a slash, does not end in one and has no empty segment", base))
		}
	}
	return errors.Join(append(errs, c.Limits.validate(), c.RateLimit.validate())...)
}

func (l Limits) validate() error {
	var errs []error
	for name, value := range map[string]int64{
		"RegisterBytes": l.RegisterBytes, "IgnoredBytes": l.IgnoredBytes, "BatchBytes": l.BatchBytes, "InFlightBytes": l.InFlightBytes,
		"InstancesTotal": int64(l.InstancesTotal), "InstancesInApp": int64(l.InstancesInApp), "Watchers": int64(l.Watchers),
	} {
		if value < 0 {
			errs = append(errs, fmt.Errorf("http: Limits.%s is %d; want 0 for the default, or more", name, value))
		}
	}
	return errors.Join(errs...)
}
