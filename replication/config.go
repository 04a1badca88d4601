package replication

import (
	"errors"
	"fmt"
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
	names := make(map[string]bool)
	for i, p := range c.Peers {
		for _, err := range p.Mistakes(&c.Side) {
			errs = append(errs, fmt.Errorf("peer %s: %w", p.Label(i), err))
		}
		if p.Name != "" && names[p.Name] {
			errs = append(errs, fmt.Errorf("peer %s: another peer has this name", p.Label(i)))
		}
		names[p.Name] = true
	}
	return errors.Join(errs...)
}
