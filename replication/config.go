package replication

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/rollcallpeer"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// Errors that a caller can act on, beside those of registry.Service.
var (
	// ErrMalformed: a message cannot be read. Its text says what is wrong.
	ErrMalformed = wire.ErrMalformed
	// ErrStranger: a message of a datacenter that is no peer of this one.
	ErrStranger = rollcallpeer.ErrStranger
	// ErrAhead: the clock of a message has gone on for longer than its sender was silent. Its text says more.
	ErrAhead = rollcallpeer.ErrAhead
	// ErrUnknownSender: the clock of no sender of that name is known.
	ErrUnknownSender = rollcallpeer.ErrUnknownSender
	// ErrUnknownPeer: there is no peer of that name.
	ErrUnknownPeer = errors.New("no such peer")
	// ErrNotSending: this node does not send now; another one, or none, does.
	ErrNotSending = errors.New("this node does not send")
	// ErrNoDigests: the peer is a Eureka server, which cannot be compared with.
	ErrNoDigests = link.ErrNoDigests
)

// Repair is when nodes compare and copy what they have. Spans that are left at zero mean their defaults.
type Repair struct {
	Digest   time.Duration `key:"replication.digest-interval" default:"1m" min:"1s" help:"time between two comparisons with a Rollcall peer"`
	CopyWait time.Duration `key:"replication.copy-wait" default:"3s" min:"1ms" help:"mode ap: how long a node that starts waits for another one that is ready to be copied from, before it goes on with what it has"`
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
	c.Peers = slices.Clone(c.Peers)
	for i := range c.Peers {
		setting.Fill(&c.Peers[i].Flow)
	}
	return c
}
