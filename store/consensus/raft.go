package consensus

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// Raft is the registry in CP mode. It implements registry.Service.
type Raft struct {
	cfg        store.Config
	log        *slog.Logger
	metrics    *metrics
	panics     *store.Panics // for whatever only measures
	identity   *membership.Identity
	machine    *fsm.Machine
	digests    *membership.Digests
	disk       *raftio.Disk
	logs       *raftio.Log
	net        *port.Port
	nodes      *port.Nodes
	transport  *raftio.Transport
	loop       *raftio.LoopWatch
	snapshots  *snapshotStore
	raft       *raft.Raft
	clock      expiry.Clock
	leadership *membership.LeaderState
	members    *membership.Members
	reader     *reader
	proposer   *proposer
	committer  *committer

	notify   chan bool         // Raft's reports on this node's leadership
	watchers registry.Watchers // waiting for changes of the registry
	keys     kv.Watchers       // waiting for changes of sessions, keys and locks
	settings settingsWatch
	ready    atomic.Bool // this node could have served a linearizable read
	// handedOver is set once HandOver was called and need not be tried again.
	handedOver atomic.Bool
	unsaved    atomic.Bool // entries were applied after the newest snapshot

	saved atomic.Pointer[snapshotNow] // as watchLog last saw it; may be nil
	// index after which no entry is below the cluster's level; 0 if the level was not raised
	raised      atomic.Uint64
	lastRefused atomic.Uint64 // index of the damaged incoming entry that was last reported
	lastDamaged atomic.Uint64 // index of the entry damaged in memory that was last reported

	closing   context.Context // ends when the node stops
	stop      context.CancelFunc
	saving    context.Context // ends when a snapshot in progress must be abandoned
	endSaving context.CancelFunc
	fatal     chan error
	failOnce  sync.Once
}

// fail ends the node; the first reason counts. It stops talking first: the others must be able to elect a leader
// before this process exits, which a hung disk may prevent.
func (s *Raft) fail(err error) {
	s.failOnce.Do(func() {
		s.net.Fence()
		s.fatal <- err
	})
}

// stopOutdated ends a node whose data directory is not what the cluster counts on.
func (s *Raft) stopOutdated(err error) {
	s.fail(fmt.Errorf("data directory %s: %w", s.cfg.DataDir, err))
}

// serverID returns the id of this node's server.
func (s *Raft) serverID() string { return s.identity.ServerID() }

// View implements registry.Service.
func (s *Raft) View(ctx context.Context, read registry.Consistency) (*registry.View, error) {
	if err := s.reader.CatchUp(ctx, read); err != nil {
		return nil, err
	}
	return s.machine.View(), nil
}
