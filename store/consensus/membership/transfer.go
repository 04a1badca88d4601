package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// Transfer hands leadership over to the voter with the given name or, with "", to the one that is furthest. It works
// on any node and ends within store.ResultWait. It returns the name of the new leader, which may take over a moment
// later. Errors: ErrUnknownMember and ErrMembership (nothing was done), registry.ErrNoLeader (nothing was done) and
// registry.ErrUnknownOutcome.
func (s *Members) Transfer(ctx context.Context, name string) (to string, err error) {
	ctx, cancel := context.WithTimeout(ctx, store.ResultWait)
	defer cancel()
	reply, err := s.atLeader(ctx, "Node.Transfer", name, func() JoinReply { return s.transfer(ctx, name) })
	if err != nil {
		return "", fmt.Errorf("transfer leadership: %w", err)
	}
	return reply.Leader, nil
}

// transfer is Transfer at the leader. A node that lags would have to catch up before it could lead, and until then
// the cluster would accept no write.
func (s *Members) transfer(ctx context.Context, name string) JoinReply {
	if s.cfg.Leadership.Own() == nil {
		return JoinReply{Answer: port.NotLeader}
	}
	look, err := s.Committed()
	if err != nil {
		return JoinReply{Answer: port.Refused, Reason: err.Error()}
	}
	if name != "" && !slices.ContainsFunc(look.Servers, func(m raft.Server) bool { return disk.NodeName(string(m.ID)) == name }) {
		return JoinReply{Answer: port.NoSuchNode}
	}
	to, err := s.successor(ctx, look, name)
	if err != nil {
		return JoinReply{Answer: port.Refused, Reason: err.Error()}
	}
	if err := raftio.Wait(ctx, s.Raft.LeadershipTransferToServer(to.ID, to.Address), removeLimit); err != nil {
		if errors.Is(err, raft.ErrNotLeader) {
			return JoinReply{Answer: port.NotLeader}
		}
		return JoinReply{Answer: port.Unknown, Reason: fmt.Sprintf("hand leadership over to %s: %v", disk.NodeName(string(to.ID)), err)}
	}
	s.cfg.Node.Log.Info("leadership was handed over", "to", disk.NodeName(string(to.ID)))
	return JoinReply{Answer: port.OK, Leader: disk.NodeName(string(to.ID))}
}

// successor returns the voter with the given name, or the furthest one, if it can lead at once.
func (s *Members) successor(ctx context.Context, look *Configuration, name string) (to raft.Server, err error) {
	var best NodeState
	err = errors.New("no other node has a vote")
	for _, m := range look.Servers {
		switch of := disk.NodeName(string(m.ID)); {
		case string(m.ID) == s.self && of == name:
			return to, fmt.Errorf("node %q leads already", name)
		case string(m.ID) == s.self, name != "" && of != name, name == "" && m.Suffrage != raft.Voter:
			continue
		case m.Suffrage != raft.Voter:
			return to, fmt.Errorf("node %q has no vote", name)
		}
		asked, cancel := context.WithTimeout(ctx, s.askLimit())
		st, askErr := s.stateOf(asked, m)
		cancel()
		switch {
		case askErr != nil:
			err = fmt.Errorf("node %q cannot be asked: %w", disk.NodeName(string(m.ID)), askErr)
		case st.NoVote:
			err = fmt.Errorf("node %q must no longer vote (node.voter)", disk.NodeName(string(m.ID)))
		case to.ID == "" || st.Applied > best.Applied:
			to, best = m, st
		}
	}
	if to.ID == "" {
		return to, err
	}
	if lag := s.cfg.Machine.Index() - min(best.Applied, s.cfg.Machine.Index()); lag > promoteWithin {
		return to, fmt.Errorf("node %q is %d entries behind, and no write would be taken until it has them: wait until rollcall status shows less than %d", disk.NodeName(string(to.ID)), lag, promoteWithin)
	}
	return to, nil
}
