package membership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/disk"
)

const (
	// readersInterval is how often a leader asks the nodes what they read, while its program reads a level that the
	// cluster does not write yet.
	readersInterval = 5 * time.Second
	// refusalAge is how old the knowledge of what the nodes read may be when an operation is refused by it.
	refusalAge = time.Second
)

// upgrade is what a node knows of the levels that the nodes of its cluster read.
type upgrade struct {
	mu      sync.Mutex      // guards the fields below
	rise    codec.LevelRise // of this node's current leadership
	nodes   []codec.NodeReads
	askedAt time.Time
}

// Reads returns what this node's program reads.
func (s *Members) Reads() codec.Reads {
	return codec.OwnReads(s.cfg.Node.Version, s.cfg.Identity.Start().ReadsSince, s.cfg.Machine.Level())
}

// readers asks every member what it reads.
func (s *Members) readers(ctx context.Context) []codec.NodeReads {
	members, err := s.All()
	if err != nil {
		return []codec.NodeReads{{Name: disk.NodeName(s.self)}} // it cannot be known
	}
	states := s.statesOf(ctx, members)
	nodes := make([]codec.NodeReads, len(members))
	for i, m := range members {
		state, known := states[m.ID]
		nodes[i] = codec.NodeReads{Name: disk.NodeName(string(m.ID)), Known: known, Reads: state.Reads}
	}
	return nodes
}

// FoundingLevel returns the level of a new cluster: the highest that all its nodes read, or the lowest if one of them
// cannot be asked.
func (s *Members) FoundingLevel(ctx context.Context) byte {
	var most byte = codec.Newest
	if most == codec.Oldest {
		return most
	}
	for _, n := range s.readers(ctx) {
		if !n.Known {
			return codec.Oldest
		}
		most = min(most, n.Newest)
	}
	return most
}

// Above returns the error of an operation that needs a higher level than the cluster writes.
func (s *Members) Above(ctx context.Context, needs byte) error {
	s.upgrade.mu.Lock()
	defer s.upgrade.mu.Unlock()
	if time.Since(s.upgrade.askedAt) > refusalAge {
		// Not canceled with this caller, because others share the answer.
		s.upgrade.nodes, s.upgrade.askedAt = s.readers(context.WithoutCancel(ctx)), time.Now()
	}
	for _, n := range s.upgrade.nodes {
		if n.Writes >= needs {
			return fmt.Errorf("%w: this node has yet to learn that the cluster writes level %d", registry.ErrNoLeader, n.Writes)
		}
	}
	return &registry.LevelError{Text: codec.LevelRefusal(s.upgrade.nodes, needs)}
}

// Raiser returns the raiser for one leadership.
func (s *Members) Raiser() *raiser {
	s.upgrade.mu.Lock()
	defer s.upgrade.mu.Unlock()
	s.upgrade.rise = codec.LevelRise{LevelPolicy: s.cfg.Node.Upgrade}
	return &raiser{members: s}
}

// raiser raises the cluster's level when all nodes read the next one.
type raiser struct {
	members *Members
	next    time.Time // when the nodes are asked again
}

// Round raises the level if it is time.
func (r *raiser) Round(ctx context.Context, now time.Time) {
	s := r.members
	if s.cfg.Machine.Level() == codec.Newest || now.Before(r.next) {
		return
	}
	r.next = now.Add(readersInterval)
	nodes, from := s.readers(ctx), s.cfg.Machine.Level()
	s.upgrade.mu.Lock()
	due := s.upgrade.rise.Observe(s.cfg.Node.World.Now(), from, nodes)
	s.upgrade.mu.Unlock()
	if !due {
		return
	}
	if err := s.raise(ctx, from); err != nil {
		s.cfg.Node.Log.Warn("the level of the cluster was not raised, and will be tried again", "err", err)
	}
}

// raise raises the level by one from the given level: if another raise came first, nothing changes.
func (s *Members) raise(ctx context.Context, from byte) error {
	if err := s.cfg.Propose(ctx, fsm.AppendRaise(nil, from, from+1)); err != nil {
		return err
	}
	s.cfg.Node.Log.Info("the level of the cluster was raised", "cluster-level", from+1, "version", codec.VersionOf(from+1))
	return nil
}

// Upgrade says where a cluster stands between two levels.
type Upgrade struct {
	Level byte
	Nodes []codec.NodeReads
	Due   time.Time // when the next level is written automatically; zero if it is not
}

// Upgrade asks all nodes what they read.
func (s *Members) Upgrade(ctx context.Context) Upgrade {
	nodes := s.readers(ctx)
	rise, written := codec.LevelRise{LevelPolicy: s.cfg.Node.Upgrade}, codec.WrittenLevel(s.cfg.Machine.Level(), nodes)
	return Upgrade{Level: written, Nodes: nodes, Due: rise.Due(written, nodes)}
}

// Finalize has the cluster write the next level. It works on any node. Errors: codec.NotYet and registry.ErrNoLeader
// (nothing was done), and registry.ErrUnknownOutcome.
func (s *Members) Finalize(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.ResultWait)
	defer cancel()
	reply, err := s.atLeader(ctx, "Node.Finalize", struct{}{}, func() JoinReply { return s.finalize(ctx) })
	if reply.Answer == port.Refused {
		return codec.NotYet(reply.Reason)
	}
	return err
}

// finalize is Finalize at the leader.
func (s *Members) finalize(ctx context.Context) JoinReply {
	if s.cfg.Leadership.Own() == nil {
		return JoinReply{Answer: port.NotLeader}
	}
	nodes, from := s.readers(ctx), s.cfg.Machine.Level()
	s.upgrade.mu.Lock()
	err := s.upgrade.rise.Finalizable(s.cfg.Node.World.Now(), from, nodes)
	s.upgrade.mu.Unlock()
	if err == nil {
		err = s.raise(ctx, from)
	}
	refused, isRefused := errors.AsType[codec.NotYet](err)
	switch {
	case isRefused:
		return JoinReply{Answer: port.Refused, Reason: string(refused)}
	case errors.Is(err, port.ErrNotSent):
		return JoinReply{Answer: port.NotLeader}
	case err != nil:
		return JoinReply{Answer: port.Unknown, Reason: err.Error()}
	}
	return JoinReply{Answer: port.OK}
}
