package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// Config is what the members need from their node.
type Config struct {
	Node       store.Config
	Identity   *Identity
	Port       *port.Port
	Nodes      *port.Nodes
	Machine    *fsm.Machine
	Leadership *LeaderState
	Fail       func(error) // ends the node
	// Propose commits an entry that is neither a write nor the first of a leadership, while this node leads. Errors
	// that wrap port.ErrNotSent are certain; after any other the outcome is unknown.
	Propose func(ctx context.Context, entry []byte) error
	Digests *Digests
}

// Members is this node's part in its cluster: how it founds, finds or joins one, and, while it leads, which other
// nodes belong to it.
type Members struct {
	Raft *raft.Raft // set once Raft is started, before anything but Observe is called

	cfg       Config
	self      string                        // this node's server id
	committed atomic.Pointer[Configuration] // newest committed configuration that this node knows of
	joinList  atomic.Pointer[[]string]      // current value of cluster.join
	foreign   atomic.Pointer[[]ForeignNode] // nodes of other clusters in cluster.join; nil if not known yet
	// when this node proposes founders; zero if not considered yet. Owned by Run
	turn       time.Time
	upgrade    upgrade
	foundRound uint64 // newest round of a proposal this node has heard of. Owned by Run
}

// New returns the members of a node. None is known yet.
func New(cfg Config) *Members {
	s := &Members{cfg: cfg, self: cfg.Identity.ServerID()}
	s.SetJoin(cfg.Node.Join)
	return s
}

// SetJoin replaces cluster.join, the addresses at which this node looks for its cluster.
func (s *Members) SetJoin(addresses []string) {
	addresses = distinct(addresses)
	s.joinList.Store(&addresses)
}

// joinAddresses returns the addresses in cluster.join, sorted, each once.
func (s *Members) joinAddresses() []string { return slices.Clone(*s.joinList.Load()) }

// Calls returns the calls that other nodes make about members.
func (s *Members) Calls() port.Calls {
	limited := func(serve func(context.Context) JoinReply) JoinReply {
		ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
		defer cancel()
		return serve(ctx)
	}
	return port.Calls{
		"Node.State": port.Method(func(struct{}) NodeState { return s.State() }), "Node.Found": port.Method(s.Found),
		"Node.Join": port.Method(s.Join), "Node.Remove": port.Method(s.Remove),
		"Node.Finalize": port.Method(func(struct{}) JoinReply { return limited(s.finalize) }),
		"Node.Transfer": port.Method(func(name string) JoinReply {
			return limited(func(ctx context.Context) JoinReply { return s.transfer(ctx, name) })
		}),
	}
}

// All returns the servers of the newest configuration in this node's log, which may not be committed yet. Changes
// must be decided on the committed one, see Committed.
func (s *Members) All() ([]raft.Server, error) {
	f := s.Raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return f.Configuration().Servers, nil
}

// Configuration is a committed configuration of the cluster. Its index is the condition of every change: Raft makes a
// change only if the configuration at this index is still the newest, so of two changes decided on the same
// configuration one is refused. (The Index of raft.GetConfiguration would not do: in version 1.7.3 it is always 0,
// which means "whatever the configuration is".)
type Configuration struct {
	Index   uint64 // index of its log entry
	Servers []raft.Server
}

// Committed returns the newest configuration that this node knows to be committed.
func (s *Members) Committed() (*Configuration, error) {
	m := s.committed.Load()
	if m == nil {
		return nil, errors.New("this node does not know the committed members yet")
	}
	return m, nil
}

// Observe takes over a committed configuration, from the log or a snapshot, in any order.
func (s *Members) Observe(index uint64, servers []raft.Server) {
	for {
		old := s.committed.Load()
		if old != nil && old.Index >= index {
			return
		}
		if s.committed.CompareAndSwap(old, &Configuration{Index: index, Servers: servers}) {
			return
		}
	}
}
