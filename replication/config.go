package replication

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/rollcallpeer"
)

// Errors that a caller can act on, besides those of registry.Service.
var (
	// ErrMalformed means that a message cannot be read. The text of the error says what is wrong.
	ErrMalformed = rollcallpeer.ErrMalformed
	// ErrNewer means that a message is of a higher level of the formats than this program reads.
	ErrNewer = rollcallpeer.ErrNewer
	// ErrStranger means that a message comes from a datacenter that is not a peer of this one.
	ErrStranger = rollcallpeer.ErrStranger
	// ErrAhead means that, by the lease clock in a message, more time has passed than its sender was silent. The text
	// of the error says more.
	ErrAhead = rollcallpeer.ErrAhead
	// ErrOtherPrincipal means that a message uses the name of a sender that another principal used first.
	ErrOtherPrincipal = rollcallpeer.ErrOtherPrincipal
	// ErrUnknownSender means that this node knows no lease clock for a sender with that name.
	ErrUnknownSender = rollcallpeer.ErrUnknownSender
	// ErrUnknownPeer means that no peer has that name.
	ErrUnknownPeer = errors.New("no such peer")
	// ErrNotSending means that this node does not send to peers now; another node does, or none.
	ErrNotSending = errors.New("this node does not send")
	// ErrNoDigests means that the peer is a Eureka server, which cannot be compared with.
	ErrNoDigests = link.ErrNoDigests
)

// Repair has the times of comparisons with peers and of the copy at the start. Zero means the default.
type Repair struct {
	Digest   time.Duration `key:"replication.digest-interval" default:"1m" min:"1s" help:"how often the node compares its state with a Rollcall peer's"`
	CopyWait time.Duration `key:"replication.copy-wait" default:"3s" min:"1ms" help:"mode ap: how long a starting node waits for a ready node to copy from before it serves what it has; if all of them wait, the first by name stops waiting"`
}

// Config is what a Replicator needs.
type Config struct {
	link.Side
	Repair
	Metrics prometheus.Registerer
}

// withDefaults fills in what was left at zero.
func (c Config) withDefaults() Config {
	setting.Fill(&c.Repair)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Peers = filled(c.Peers)
	c.Now = new(atomic.Pointer[[]link.PeerConfig])
	c.Now.Store(&c.Peers)
	return c
}

// filled returns a list of peers with defaults for what was left at zero.
func filled(peers []link.PeerConfig) []link.PeerConfig {
	peers = slices.Clone(peers)
	for i := range peers {
		setting.Fill(&peers[i].Flow)
	}
	return peers
}
