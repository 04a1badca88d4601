package store

import (
	"context"
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
	members, index, err := s.members()
	if err != nil {
		return JoinReply{Answer: answerRefused, Reason: err.Error()}
	}
	name := nameOf(args.ServerID)
	add := s.raft.AddNonvoter
	for _, m := range members {
		switch {
		case nameOf(string(m.ID)) != name:
		case m.ID != raft.ServerID(args.ServerID):
			return JoinReply{Answer: answerRefused, Reason: fmt.Sprintf(
				"the cluster knows node %q with another data directory (server id %s): remove that one first (rollcall members remove %s), or choose another node.name", name, m.ID, name)}
		case m.Suffrage == raft.Voter:
			add = s.raft.AddVoter // it has moved: the same vote at another address
		}
	}
	f := add(raft.ServerID(args.ServerID), raft.ServerAddress(args.Addr), index, changeLimit)
	if err := waitFuture(context.Background(), f, changeLimit); err != nil {
		return JoinReply{Answer: answerRefused, Reason: fmt.Sprintf("take node %q in: %v", name, err)}
	}
	s.log.Info("member", "node", name, "address", args.Addr)
	return JoinReply{Answer: answerOK}
}

// promoter gives newcomers a vote once they keep up.
type promoter struct {
	s     *Raft
	since map[raft.ServerID]time.Time // since when a newcomer has kept up
}

func (p *promoter) round(ctx context.Context) {
	members, index, err := p.s.members()
	if err != nil {
		return
	}
	for _, m := range members {
		if m.Suffrage == raft.Nonvoter {
			p.consider(ctx, m, index)
		}
	}
}

// consider judges a newcomer of the configuration with an index: one that was removed since must not
// come back with a vote.
func (p *promoter) consider(ctx context.Context, m raft.Server, index uint64) {
	asked, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	st, err := p.s.stateAt(asked, p.s.peers.addressOf(m))
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
	if err := waitFuture(ctx, p.s.raft.AddVoter(m.ID, m.Address, index, changeLimit), changeLimit); err != nil {
		p.s.log.Warn("newcomer did not become a voter", "node", nameOf(string(m.ID)), "err", err)
		return
	}
	p.s.log.Info("newcomer votes", "node", nameOf(string(m.ID)))
}
