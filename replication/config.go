package replication

import (
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/replication/link"
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
