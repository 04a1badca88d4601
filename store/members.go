package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// searchInterval is the pause between two looks for a cluster.
	searchInterval = 200 * time.Millisecond
	// askLimit bounds a question to all nodes.
	askLimit = 500 * time.Millisecond
	// changeLimit bounds a change of the cluster's configuration.
	changeLimit = 5 * time.Second
	// promoteAfter is how long a newcomer must keep up before it may vote, and promoteWithin how
	// many entries behind counts as keeping up: a voter that lacks the data would widen the quorum
	// before it can serve in it.
	promoteAfter  = 10 * time.Second
	promoteWithin = 100
)

// JoinArgs asks for membership.
type JoinArgs struct{ ServerID, Addr string }

// JoinReply answers Join and Remove.
type JoinReply struct {
	Answer uint8
	Reason string
}

// Join takes a node into the cluster, or notes its new address.
func (n *nodeCalls) Join(args JoinArgs, reply *JoinReply) error {
	*reply = n.s.takeIn(args)
	return nil
}

func (s *Raft) takeIn(args JoinArgs) JoinReply {
	if s.lead.Load() == nil {
		return JoinReply{Answer: answerNotLeader}
	}
	members, err := s.members()
	if err != nil {
		return JoinReply{Answer: answerRefused, Reason: err.Error()}
	}
	name := nameOf(args.ServerID)
	for _, m := range members {
		if m.ID != raft.ServerID(args.ServerID) && nameOf(string(m.ID)) == name {
			return JoinReply{Answer: answerRefused, Reason: fmt.Sprintf(
				"the cluster knows node %q with another data directory (server id %s): remove that one first (rollcall members remove %s), or choose another node.name", name, m.ID, name)}
		}
	}
	f := s.raft.AddNonvoter(raft.ServerID(args.ServerID), raft.ServerAddress(args.Addr), 0, changeLimit)
	if err := waitFuture(f, changeLimit); err != nil {
		return JoinReply{Answer: answerRefused, Reason: fmt.Sprintf("take node %q in: %v", name, err)}
	}
	s.log.Info("took a node in", "node", name, "address", args.Addr)
	return JoinReply{Answer: answerOK}
}

// promoter gives newcomers a vote once they keep up.
type promoter struct {
	s     *Raft
	since map[raft.ServerID]time.Time // since when a newcomer has kept up
}

func (p *promoter) round(ctx context.Context) {
	members, err := p.s.members()
	if err != nil {
		return
	}
	for _, m := range members {
		if m.Suffrage == raft.Nonvoter {
			p.consider(ctx, m)
		}
	}
}

func (p *promoter) consider(ctx context.Context, m raft.Server) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	st, err := p.s.stateAt(ctx, p.s.peers.addressOf(m))
	if err != nil || st.Applied+promoteWithin < p.s.machine.Index() {
		delete(p.since, m.ID)
		return
	}
	if p.since == nil {
		p.since = map[raft.ServerID]time.Time{}
	}
	if _, ok := p.since[m.ID]; !ok {
		p.since[m.ID] = time.Now()
	}
	if time.Since(p.since[m.ID]) < promoteAfter {
		return
	}
	if err := waitFuture(p.s.raft.AddVoter(m.ID, m.Address, 0, changeLimit), changeLimit); err != nil {
		p.s.log.Warn("newcomer did not become a voter", "node", nameOf(string(m.ID)), "err", err)
		return
	}
	p.s.log.Info("newcomer votes", "node", nameOf(string(m.ID)))
}

// Errors of RemoveMember that a caller can act on.
var (
	// ErrUnknownMember: the cluster has no node of that name.
	ErrUnknownMember = errors.New("no such node")
	// ErrMembership: the change was refused, or nobody knows whether it was made; look before you retry.
	ErrMembership = errors.New("membership was not changed")
)

// RemoveMember takes a node out of the cluster for good: its data directory is of no use any more,
// its name is free again. It works on any node.
func (s *Raft) RemoveMember(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	var reply JoinReply
	leader := s.leader.Load()
	switch {
	case s.lead.Load() != nil:
		reply = s.putOut(name)
	case leader == nil:
		return fmt.Errorf("remove node %q: %w: no leader", name, ErrMembership)
	default:
		if err := s.peers.call(ctx, s.peers.dialAddress(leader.id, leader.address), "Node.Remove", name, &reply); err != nil {
			return fmt.Errorf("remove node %q: %w: %w", name, ErrMembership, err)
		}
	}
	switch reply.Answer {
	case answerOK:
		return nil
	case answerUnknown:
		return fmt.Errorf("remove node %q: %w", name, ErrUnknownMember)
	}
	return fmt.Errorf("remove node %q: %w: %s", name, ErrMembership, reply.Reason)
}

// Remove takes a node out of the cluster; answerUnknown means that there is none of that name.
func (n *nodeCalls) Remove(name string, reply *JoinReply) error {
	*reply = n.s.putOut(name)
	return nil
}

func (s *Raft) putOut(name string) JoinReply {
	if s.lead.Load() == nil {
		return JoinReply{Answer: answerNotLeader, Reason: errNotLeader.Error()}
	}
	members, err := s.members()
	if err != nil {
		return JoinReply{Answer: answerRefused, Reason: err.Error()}
	}
	for _, m := range members {
		if nameOf(string(m.ID)) != name {
			continue
		}
		if err := waitFuture(s.raft.RemoveServer(m.ID, 0, changeLimit), changeLimit); err != nil {
			return JoinReply{Answer: answerRefused, Reason: err.Error()}
		}
		s.log.Info("removed a node", "node", name)
		return JoinReply{Answer: answerOK}
	}
	return JoinReply{Answer: answerUnknown}
}
