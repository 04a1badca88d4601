package replication

import (
	"crypto/tls"
	"log/slog"
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

// CutPolicy says what becomes of a peer's instances whose time has passed while its link is cut.
type CutPolicy struct {
	Keep bool          // keep them
	For  time.Duration // with Keep, from the last contact; 0: as long as the cut lasts
}

// PeerConfig is one peer. Zero numbers mean their defaults.
type PeerConfig struct {
	// Name is a node's address, a datacenter's name or a Eureka server's name: unique among all peers.
	Name string
	Kind Kind
	// URLs are base URLs without a slash at the end; user info is sent as basic auth and never shown. Of
	// a Rollcall peer: scheme and host, any of its nodes, tried in turn. Of a Eureka server: its one
	// service URL, such as http://host:8761/eureka.
	URLs  []string
	OnCut CutPolicy

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
	// Sender names whose lease clock Health.Clock shows, and Boot its start: a cluster's id and 0 (CP), or
	// the node's server id and its boot (AP).
	Sender func() (name string, boot uint64)
	// Consensus: one node sends for the whole datacenter and decides its evictions, which are replicated.
	// Without, every node sends what its own clients said, and evicts for itself.
	Consensus bool
	Peers     []PeerConfig
	Digest    time.Duration // between comparisons; 0: 60 s
	Log       *slog.Logger  // nil: discards
	Metrics   prometheus.Registerer
}
