package httpd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/audit"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/dashboard"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// Config is what a Handler needs. Service is required; every other field has a default. Fields with a key are settings
// of the node (see package setting).
type Config struct {
	World *world.World // nil means the machine's
	// Service is the registry.
	Service registry.Service
	// Cluster shows the nodes. If nil, only this node is shown.
	Cluster web.Cluster
	// Members changes the nodes. If nil, they cannot be changed here, and its routes respond with 501.
	Members own.Members
	// Upgrade tells which levels of the formats the nodes read and write. If nil, that is unknown, and its routes
	// respond with 501.
	Upgrade own.Upgrade
	// Debug makes bundles. If nil, its route responds with 501.
	Debug own.Debug
	// Coordination serves Consul's API, and sessions, keys and locks. If nil, the node has no consensus, and their
	// routes respond with 501.
	Coordination consul.Coordination
	// LogLevel is the level of the node's log. If nil, it cannot be changed here, and its routes respond with 501.
	LogLevel own.LogLevel
	// Peers replicates to other servers. If nil, nothing is replicated, and its routes respond with 501.
	Peers own.Peers
	// Snapshots saves and restores snapshots for people. If nil, its routes respond with 501.
	Snapshots own.Snapshots
	// EurekaSender names the Eureka server behind an identity (DiscoveryIdentity-Id, may be empty) and an address
	// (host:port). If nil, every server is "eureka".
	EurekaSender func(identity, address string) string
	// EurekaRefused is eurekaroutes.Config.Refused.
	EurekaRefused func(key registry.Key, what, from, why string)
	// Node is the name of this node, Datacenter that of its datacenter, and Version the program's. They are only
	// shown.
	Node, Datacenter, Version string
	// Agents decides whose agent takes a call of Consul's API that names no agent.
	Agents consul.Agents `key:"consul.agents" default:"source" words:"source one" help:"which agent serves a call of Consul's API whose path names none (/agent/NAME/v1/...): source (one agent per calling address) or one (the logical node's, for all)"`
	// Host is this node's host as other hosts name it. Programs that ask the node on loopback get this host's agent.
	// If empty, only programs on this host reach the node.
	Host string
	// ReapCritical is at least a minute, as in Consul. By default it is 0: a critical service stays.
	ReapCritical time.Duration `key:"checks.deregister-critical-after" min:"1m" zero:"never" help:"how long a check may be critical before its service is removed, unless the check says otherwise (DeregisterCriticalServiceAfter)"`
	// JudgeProbe judges the probes of checks at their registration. If nil, all are allowed.
	JudgeProbe web.ProbeJudge
	// WithoutConsensus means that each node orders operations and ends leases on its own, by a lease clock that always
	// runs, without a leader. It only affects what people read.
	WithoutConsensus bool
	// WaitWhenEmpty is how long fetches get 403.
	WaitWhenEmpty time.Duration `key:"replication.wait-when-empty" default:"0s" min:"0s" help:"mode ap: how long lists are refused after a start that found no instances anywhere (waitTimeInMsWhenSyncEmpty)"`
	// Reads is the freshness of Eureka reads without a consistency parameter.
	Reads web.EurekaReads `key:"reads.eureka" default:"linearizable" words:"linearizable stale-without-quorum stale" help:"what Eureka clients read"`
	// Acts decides whether the dashboard may make changes when callers need no name.
	Acts dashboard.Acts `key:"dashboard.acts" default:"auto" words:"auto on off" help:"whether the dashboard may make changes while auth.mode asks for no token: auto (on if the node listens on loopback only), on or off"`
	// BasePaths are where Eureka's resources live; nil means DefaultBasePaths. A base whose last segment is v1, in any
	// case, serves version 1 of the protocol, all others version 2.
	BasePaths []string
	// Hosts are the names that the node is served under, beside localhost and addresses; a request to any other gets
	// 421, see sites. If nil, any name is served.
	Hosts []string
	// ConnectionLife bounds how long a connection over TLS lasts. 0 means an hour.
	ConnectionLife time.Duration
	// Access says who may do what.
	Access web.AccessConfig
	// Audit records who did what. If nil, its route responds with 501.
	Audit *audit.Log
	// Log receives what does not concern the client. If nil, it is discarded.
	Log *slog.Logger
	// Metrics is where the package registers its metrics and what /metrics shows. If nil, the handler makes a registry
	// of its own.
	Metrics *prometheus.Registry
	// ScrapeErrors is told which figures /metrics could not show. If nil, nobody is.
	ScrapeErrors promhttp.Logger
	// MetricsApps bounds the series of rollcall_registry_app_instances.
	MetricsApps int `key:"metrics.apps" default:"500" min:"1" help:"for how many of the largest applications /metrics shows instances by status; the others are added up under an empty name"`
	// Limits bounds the cost of a request.
	Limits web.Limits `reload:"yes"`
	// RateLimit limits fetches of the registry. The zero value limits nothing.
	RateLimit RateLimit `reload:"yes"`
	// ReadOnlyCache answers reads of lists without a consistency parameter with responses up to 30 s old, as
	// upstream's servers do, labelled stale.
	ReadOnlyCache bool `key:"eureka-compat.read-only-cache" help:"Eureka clients read documents that are up to 30 s old (useReadOnlyResponseCache, responseCacheUpdateIntervalMs)"`
}

// DefaultBasePaths returns the base paths of Netflix's and Spring Cloud's servers.
func DefaultBasePaths() []string { return []string{"/eureka/v2", "/eureka/v1", "/eureka", "/v2"} }

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
	errs = append(errs, setting.Check(c))
	if slices.Contains(c.RateLimit.Privileged, "") {
		errs = append(errs, errors.New("http: RateLimit.Privileged has an empty name; it would be that of every client that sends none"))
	}
	return errors.Join(errs...)
}

// alone is the Cluster of a node that was given none.
type alone struct{}

// Status implements web.Cluster.
func (alone) Status(context.Context) api.Status { return api.Status{} }

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
	c.ConnectionLife = cmp.Or(c.ConnectionLife, time.Hour)
	setting.Fill(&c)
	return c
}

// node returns the part of a configuration that every API's routes need.
func (c *Config) node() web.Config {
	n := web.Config{
		World: c.World, Service: c.Service, Cluster: c.Cluster, Name: c.Node, Datacenter: c.Datacenter, Version: c.Version,
		WithoutConsensus: c.WithoutConsensus, Reads: c.Reads, Limits: c.Limits, ConnectionLife: c.ConnectionLife, Log: c.Log, Metrics: c.Metrics, Access: c.Access, Audit: c.Audit,
	}
	if c.Coordination != nil {
		n.Coordination = c.Coordination
	}
	if c.Peers != nil {
		n.Cut = c.Peers.Cut
	}
	return n
}
