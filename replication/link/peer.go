package link

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/internal/world"
)

// Kind is the kind of a peer.
type Kind uint8

// Kinds of peers.
const (
	Node       Kind = iota // a node of the same datacenter, without consensus
	Datacenter             // another Rollcall datacenter
	Eureka                 // a Netflix Eureka server, a datacenter of its own
)

var kindNames = [...]string{Node: "node", Datacenter: "datacenter", Eureka: "eureka"}

// String returns the word used in documents.
func (k Kind) String() string { return kindNames[k] }

// PeerConfig is one peer. Zero numbers mean their defaults.
type PeerConfig struct {
	// Name is a node's address, a datacenter's name or a Eureka server's name: unique among all peers.
	Name string
	Kind Kind
	// URLs are base URLs without a trailing slash; user info is sent as basic auth and never shown. A Rollcall peer
	// has scheme and host of any of its nodes, tried in turn. A Eureka server has its one service URL, such as
	// http://host:8761/eureka.
	URLs []string

	Flow
	Rate   int  // tasks per second; 0 means no limit
	Single bool // Eureka servers only: one call per item instead of batches
	// TLS returns the configuration for connections. Nil means the system's authorities.
	TLS  func() *tls.Config
	Life time.Duration // a connection ends within it; 0 means an hour
	// TokenFile has the password of calls to the peer, such as a token; it is read at each call. If it is "", the
	// URL's password is sent.
	TokenFile string
	World     *world.World // nil means the real machine
}

// Flow is how tasks go to a peer. Numbers and durations that are left at zero mean their defaults.
type Flow struct {
	// BatchSize: upstream's servers accept 250, and a Rollcall peer 8 MiB.
	BatchSize       int           `key:"replication.batch-size" default:"250" min:"1" max:"1000" help:"most tasks in one batch"`
	BatchDelay      time.Duration `key:"replication.batch-delay" default:"500ms" min:"1ms" help:"how long a task waits for others after its first submission; a full batch is sent at once (maxBatchingDelay)"`
	Queue           int           `key:"replication.queue" default:"10000" min:"1" help:"most pending tasks per peer (maxElementsInPeerReplicationPool)"`
	Workers         int           `key:"replication.workers" default:"20" min:"1" max:"1000" help:"most batches in flight per peer (maxThreadsForPeerReplication)"`
	CongestionDelay time.Duration `key:"replication.congestion-delay" default:"1s" min:"1ms" help:"delay after a peer was busy or slow"`
	NetworkDelay    time.Duration `key:"replication.network-delay" default:"100ms" min:"1ms" help:"delay after a peer could not be reached"`
	MaxDelay        time.Duration `key:"replication.max-delay" default:"30s" min:"1ms" help:"upper bound of both delays"`
	Backoff         bool          `key:"replication.backoff" default:"true" help:"let both delays grow after repeated failures, with jitter; false: constant, as upstream"`
	Expiry          time.Duration `key:"replication.expiry" default:"30s" min:"1s" help:"how long a cancel or status change is retried before the current state is sent instead (maxTimeForReplication)"`
	ConnectTimeout  time.Duration `key:"replication.connect-timeout" default:"1s" min:"1ms" help:"time to reach a peer (peerNodeConnectTimeoutMs)"`
	ReadTimeout     time.Duration `key:"replication.read-timeout" default:"5s" min:"1ms" help:"time for a peer's reply (peerNodeReadTimeoutMs)"`
}

// label names the peer at a place in the configuration.
func (p PeerConfig) label(place int) string {
	if p.Name == "" {
		return fmt.Sprintf("number %d", place+1)
	}
	return p.Name
}

// mistakes returns what is wrong with the peer on its own.
func (p PeerConfig) mistakes(datacenter string, consensus bool) []error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(p.Name == "", "Name is missing")
	wrong(p.Name == datacenter && p.Kind != Node, "it has the name of this datacenter")
	wrong(p.Kind > Eureka, "Kind is %d: it must be Node, Datacenter or Eureka", p.Kind)
	wrong(p.Kind == Node && consensus, "the nodes of a datacenter with consensus do not replicate to each other")
	wrong(p.Single && p.Kind != Eureka, "Single is for Eureka servers only")
	wrong(len(p.URLs) == 0, "URLs is empty")
	wrong(p.Kind == Eureka && len(p.URLs) > 1, "it has %d URLs: each Eureka server is a peer of its own", len(p.URLs))
	for _, text := range p.URLs {
		u, err := url.Parse(text)
		switch { // no error shows user info
		case err != nil:
			wrong(true, "a URL cannot be parsed: it must be like http://host:port")
		case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			wrong(true, "URL %q must be absolute, like http://host:port", u.Redacted())
		default:
			wrong(strings.HasSuffix(u.Path, "/") || u.RawQuery != "" || u.Fragment != "", "URL %q must have no slash at its end, no query and no fragment", u.Redacted())
		}
	}
	return errs
}

// WithoutUser returns a URL as it may be shown.
func WithoutUser(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}

// How long a link may be silent before it counts as cut. A Rollcall peer is heard at least every few seconds; a
// Eureka server when it has something to replicate, or renews its own registration.
const (
	DatacenterCut = 15 * time.Second
	eurekaCut     = 90 * time.Second
)

// CutAfter returns how long a datacenter or Eureka server may be silent before its link counts as cut.
func (p *PeerConfig) CutAfter() time.Duration {
	if p.Kind == Datacenter {
		return DatacenterCut
	}
	return eurekaCut
}
