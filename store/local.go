package store

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Sync says when a change is on disk in AP mode.
type Sync uint8

// The settings of data.sync.
const (
	SyncInterval Sync = iota // written behind, every LocalConfig.SyncInterval
	SyncAlways               // before the answer
	SyncNone                 // when the node stops
)

// SparePolicy says whether leases of another datacenter, whose time has passed, stay for now. heard is
// how long ago (lease clock) it was last heard; ok is false if it never was.
type SparePolicy func(dc string, heard time.Duration, ok bool) bool

// LocalConfig says how a node without consensus runs. Zero values mean what is said beside them.
type LocalConfig struct {
	Node         string        // name of this node; required
	Datacenter   string        // that the data directory belongs to
	DataDir      string        // belongs to this node alone; required
	Sync         Sync          // when changes are on disk
	SyncInterval time.Duration // 0: 1 s

	EvictionInterval time.Duration // 0: 1 s
	EvictionTimer    bool          // as RaftConfig.EvictionTimer
	Settings         registry.Settings
	Spares           SparePolicy // nil: leases of other datacenters end like all others
	// Copy takes over what the other nodes have, before this one is ready; nil: nothing. An error is
	// logged: the node serves what it has.
	Copy func(context.Context) error
	// Age is Health.Age; nil: 0.
	Age func() time.Duration

	Log     *slog.Logger          // nil: discards
	Metrics prometheus.Registerer // nil: none
}

// Local is the registry in AP mode: the same state machine without consensus. Operations are performed
// where they arrive, and answered at once; the disk follows. It implements registry.Service.
type Local struct{ cfg LocalConfig }

// OpenLocal opens the data directory and loads what it holds. Nothing is answered before Run.
func OpenLocal(cfg LocalConfig) (*Local, error) { panic("not written") }

// Identity names the node in its data directory (a name that no other directory has), and counts its
// starts.
func (s *Local) Identity() (serverID string, boot uint64) { panic("not written") }

// Run serves until ctx ends; it then writes what is not on disk yet and returns nil. An error of the
// disk ends it too.
func (s *Local) Run(ctx context.Context) error { panic("not written") }

// Apply implements registry.Service.
func (s *Local) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	panic("not written")
}

// View implements registry.Service: ErrNotOffered for anything but Stale.
func (s *Local) View(ctx context.Context, read registry.Consistency) (*registry.View, error) {
	panic("not written")
}

// Changes implements registry.Service.
func (s *Local) Changes(ctx context.Context, after registry.Index, which registry.Selector) (registry.Changes, error) {
	panic("not written")
}

// Health implements registry.Service.
func (s *Local) Health() registry.Health { panic("not written") }
