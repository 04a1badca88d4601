package replication

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Kind is what a peer is.
type Kind uint8

// The kinds.
const (
	Node       Kind = iota // a node of the own datacenter, without consensus
	Datacenter             // another Rollcall datacenter
	Eureka                 // a Netflix Eureka server, a datacenter of its own
)

var kindNames = [...]string{Node: "node", Datacenter: "datacenter", Eureka: "eureka"}

// String returns the word used in answers.
func (k Kind) String() string { return kindNames[k] }

// PeerConfig is one peer. Zero numbers mean their defaults.
type PeerConfig struct {
	// Name is a node's address, a datacenter's name or a Eureka server's name: unique among all peers.
	Name string
	Kind Kind
	// URLs are base URLs without a slash at the end; user info is sent as basic auth and never shown. Of
	// a Rollcall peer: scheme and host, any of its nodes, tried in turn. Of a Eureka server: its one
	// service URL, such as http://host:8761/eureka.
	URLs []string

	BatchSize       int           // 0: 250
	BatchDelay      time.Duration // 0: 500 ms
	Queue           int           // 0: 10000
	Workers         int           // 0: 20
	CongestionDelay time.Duration // 0: 1 s
	NetworkDelay    time.Duration // 0: 100 ms
	MaxDelay        time.Duration // 0: 30 s
	Backoff         bool          // grow both delays with jitter
	Expiry          time.Duration // of cancels and status changes; 0: 30 s. Others: one renewal interval
	Rate            int           // tasks per second; 0: no limit
	Single          bool          // Eureka servers only: one call per item instead of batches
	ConnectTimeout  time.Duration // 0: 1 s
	ReadTimeout     time.Duration // 0: 5 s
	TLS             *tls.Config   // nil: the system's authorities
}

// Config is what a Replicator needs.
type Config struct {
	Service    registry.Service
	Datacenter string // the own one's name
	Node       string // the own node's name
	// HTTP is the own node's address for clients, host:port: what Eureka servers are told.
	HTTP string
	// Sender names whose lease clock Health.Clock shows: a cluster's id (CP), or the node's server id (AP).
	Sender func() string
	// Consensus: one node sends for the whole datacenter and decides its evictions, which are replicated.
	// Without, every node sends what its own clients said, and evicts for itself.
	Consensus bool
	Peers     []PeerConfig
	Digest    time.Duration // between comparisons; 0: 60 s
	// CopyWait is how long Copy waits for another node to be ready; 0: 3 s.
	CopyWait time.Duration
	Log      *slog.Logger // nil: discards
	Metrics  prometheus.Registerer

	incarnation *incarnation // of this sender; New draws it
}

// Defaults of a Config and its peers.
const (
	defaultBatchSize       = 250
	defaultBatchDelay      = 500 * time.Millisecond
	defaultQueue           = 10_000
	defaultWorkers         = 20
	defaultCongestionDelay = time.Second
	defaultNetworkDelay    = 100 * time.Millisecond
	defaultMaxDelay        = 30 * time.Second
	defaultExpiry          = 30 * time.Second
	defaultConnectTimeout  = time.Second
	defaultReadTimeout     = 5 * time.Second
	defaultDigest          = time.Minute
	defaultCopyWait        = 3 * time.Second
)

// withDefaults fills in what was left at zero.
func (c Config) withDefaults() Config {
	c.Digest = or(c.Digest, defaultDigest)
	c.CopyWait = or(c.CopyWait, defaultCopyWait)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	peers := make([]PeerConfig, len(c.Peers))
	for i, p := range c.Peers {
		peers[i] = p.withDefaults()
	}
	c.Peers = peers
	return c
}

func (p PeerConfig) withDefaults() PeerConfig {
	p.BatchSize = or(p.BatchSize, defaultBatchSize)
	p.BatchDelay = or(p.BatchDelay, defaultBatchDelay)
	p.Queue = or(p.Queue, defaultQueue)
	p.Workers = or(p.Workers, defaultWorkers)
	p.CongestionDelay = or(p.CongestionDelay, defaultCongestionDelay)
	p.NetworkDelay = or(p.NetworkDelay, defaultNetworkDelay)
	p.MaxDelay = or(p.MaxDelay, defaultMaxDelay)
	p.Expiry = or(p.Expiry, defaultExpiry)
	p.ConnectTimeout = or(p.ConnectTimeout, defaultConnectTimeout)
	p.ReadTimeout = or(p.ReadTimeout, defaultReadTimeout)
	return p
}

func or[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// validate reports every mistake at once.
func (c Config) validate() error {
	var errs []error
	if c.Service == nil {
		errs = append(errs, errors.New("there is no Service"))
	}
	if c.Datacenter == "" {
		errs = append(errs, errors.New("the own datacenter must have a name (Datacenter)"))
	}
	if c.Node == "" {
		errs = append(errs, errors.New("the own node must have a name (Node)"))
	}
	if c.Sender == nil {
		errs = append(errs, errors.New("there is no Sender"))
	}
	if c.Digest < 0 {
		errs = append(errs, fmt.Errorf("the time between comparisons must not be negative, and is %v (Digest)", c.Digest))
	}
	if c.CopyWait < 0 {
		errs = append(errs, fmt.Errorf("the wait for a node to copy from must not be negative, and is %v (CopyWait)", c.CopyWait))
	}
	names := make(map[string]bool)
	for i, p := range c.Peers {
		for _, err := range p.mistakes(c) {
			errs = append(errs, fmt.Errorf("peer %s: %w", p.label(i), err))
		}
		if p.Name != "" && names[p.Name] {
			errs = append(errs, fmt.Errorf("peer %s: another peer has this name", p.label(i)))
		}
		names[p.Name] = true
	}
	return errors.Join(errs...)
}

// label names the peer at a place of the configuration.
func (p PeerConfig) label(place int) string {
	if p.Name == "" {
		return fmt.Sprintf("number %d", place+1)
	}
	return p.Name
}

// mistakes are what is wrong with the peer for itself.
func (p PeerConfig) mistakes(c Config) []error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(p.Name == "", "Name is missing")
	wrong(p.Name == c.Datacenter && p.Kind != Node, "it has the name of the own datacenter")
	wrong(p.Kind > Eureka, "Kind is %d: it must be Node, Datacenter or Eureka", p.Kind)
	wrong(p.Kind == Node && c.Consensus, "the nodes of a datacenter with consensus do not replicate to each other")
	wrong(p.Single && p.Kind != Eureka, "Single is for Eureka servers only")
	wrong(len(p.URLs) == 0, "URLs is empty")
	wrong(p.Kind == Eureka && len(p.URLs) > 1, "it has %d URLs: each Eureka server is a peer of its own", len(p.URLs))
	for _, text := range p.URLs {
		if err := checkURL(text); err != nil {
			errs = append(errs, err)
		}
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"BatchSize", int64(p.BatchSize)}, {"BatchDelay", int64(p.BatchDelay)}, {"Queue", int64(p.Queue)}, {"Workers", int64(p.Workers)},
		{"CongestionDelay", int64(p.CongestionDelay)}, {"NetworkDelay", int64(p.NetworkDelay)}, {"MaxDelay", int64(p.MaxDelay)},
		{"Expiry", int64(p.Expiry)}, {"Rate", int64(p.Rate)}, {"ConnectTimeout", int64(p.ConnectTimeout)},
		{"ReadTimeout", int64(p.ReadTimeout)},
	} {
		wrong(n.value < 0, "%s must not be negative", n.name)
	}
	return errs
}

// checkURL refuses what is no absolute URL of HTTP. It never shows user info.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("a URL cannot be parsed: it must be like http://host:port")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("URL %q must be absolute, like http://host:port", u.Redacted())
	}
	if strings.HasSuffix(u.Path, "/") || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("URL %q must have no slash at its end, no query and no fragment", u.Redacted())
	}
	return nil
}

// withoutUser is a URL as it may be shown.
func withoutUser(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}
