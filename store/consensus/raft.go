package consensus

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/disk"
	"github.com/seed-20419f34/rollcall/store/expiry"
	"github.com/seed-20419f34/rollcall/store/wait"
)

// Raft is the registry in CP mode. It implements registry.Service.
type Raft struct {
	cfg       store.Config
	log       *slog.Logger
	metrics   *metrics
	id        *disk.Identity // as it was at the start: what changes is in standing
	machine   *fsm.Machine
	disk      *raftio.Disk
	net       *port.Port
	transport *raftio.Transport
	peers     *port.Peers
	raft      *raft.Raft
	loop      *raftio.LoopWatch
	logs      *raftio.Log
	snapshots raft.SnapshotStore
	clock     expiry.Clock

	idMu       sync.Mutex                    // held while the identity is changed on disk
	standing   atomic.Pointer[disk.Identity] // the newest that is on disk
	turn       time.Time                     // when this node proposes founders; zero: not considered. Owned by findCluster
	foundRound uint64                        // newest round of a proposal it has heard of. Owned by findCluster

	notify    chan bool                     // Raft's word on this node's leadership
	leader    atomic.Pointer[leaderView]    // who leads, as far as this node knows
	lead      atomic.Pointer[leadership]    // set while this node is the established leader
	foreign   atomic.Pointer[[]ForeignNode] // nodes of other clusters in cluster.join; nil: it has not looked yet
	committed atomic.Pointer[membership]    // newest committed configuration that this node knows of
	changed   wait.Broadcast                // fires when leader or lead changed
	applied   wait.Broadcast                // fires when an entry was applied
	watchers  registry.Watchers             // wait for changes of the registry
	keys      kv.Watchers                   // wait for changes of sessions, keys and locks
	settings  settingsWatch
	reads     *rounds[uint64] // linearizable reads
	indexes   *rounds[uint64] // reads in mode "leader"
	fresh     freshness       // how old the state can be
	terms     atomic.Pointer[terms]
	asking    sync.Map // addresses that a question for the term is open at
	committer *committer
	ready     atomic.Bool
	opened    time.Time
	proposed  atomic.Int64 // UnixNano of the last entry this node proposed
	unsaved   atomic.Bool  // entries were applied after the newest snapshot

	lastRefused atomic.Uint64 // the entry that was last said to have come damaged
	lastDamaged atomic.Uint64 // the entry that was last said to be damaged in memory

	closing   context.Context // ends when the node stops
	stop      context.CancelFunc
	saving    context.Context // ends when a snapshot has no more time to be written
	endSaving context.CancelFunc
	fatal     chan error
	failOnce  sync.Once
}

// fail ends the node: the first reason counts. The others must be able to elect before this
// process ends, which a hung disk may prevent, so talking stops first.
func (s *Raft) fail(err error) {
	s.failOnce.Do(func() {
		s.net.Fence()
		s.fatal <- err
	})
}

// hello is what this node says of itself.
func (s *Raft) hello() port.Hello {
	return port.Hello{Cluster: s.clusterID(), ServerID: s.id.ServerID, Boot: s.id.Boot, Before: s.id.Before}
}

// stopOutdated ends a node whose data directory is not what the cluster counts on.
func (s *Raft) stopOutdated(err error) {
	s.fail(fmt.Errorf("data directory %s: %w", s.cfg.DataDir, err))
}

func (s *Raft) clusterID() string {
	return s.standing.Load().Cluster
}

// adoptCluster writes down, once and for all, which cluster this node belongs to.
func (s *Raft) adoptCluster(id string) error {
	return s.changeIdentity(func(own *disk.Identity) bool {
		own.Cluster, own.Founding = id, disk.Founding{} // what it promised may have come to nothing
		return true
	})
}

// changeIdentity changes the identity on disk, unless do returns false. Only then others see the change:
// meanwhile they see this node as it was, and do not wait for the disk.
func (s *Raft) changeIdentity(do func(*disk.Identity) bool) error {
	s.idMu.Lock()
	defer s.idMu.Unlock()
	id := *s.standing.Load()
	if !do(&id) {
		return nil
	}
	if err := id.Save(); err != nil {
		return err
	}
	s.standing.Store(&id)
	return nil
}

// nodeCalls are the methods of the node channel, in the form that net/rpc wants. A node answers for
// itself only: "not the leader" is an answer, never a reason to ask somebody else.
type nodeCalls struct{ s *Raft }
