package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// removeLimit bounds the leader's wait for a removal. With the questions before it, the caller has its reply within
// store.ResultWait.
const removeLimit = 3 * time.Second

// Errors of RemoveMember that a caller can act on.
var (
	// ErrUnknownMember means that the cluster has no node of that name.
	ErrUnknownMember = errors.New("no such node")
	// ErrMembership means that the change was refused and nothing was done; the text says why.
	ErrMembership = errors.New("membership was not changed")
)

// RemoveMember removes a node from the cluster for good: its data directory becomes useless, and its name is free
// again. It works on any node and ends within store.ResultWait. Errors: the two above, registry.ErrNoLeader (nothing
// was done) and registry.ErrUnknownOutcome.
func (s *Members) RemoveMember(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, store.ResultWait)
	defer cancel()
	if _, err := s.atLeader(ctx, "Node.Remove", name, func() JoinReply { return s.Remove(name) }); err != nil {
		return fmt.Errorf("remove node %q: %w", name, err)
	}
	return nil
}

// Removal returns the reply to Remove as an error, or nil if the node was removed.
func (r JoinReply) Removal() error {
	switch r.Answer {
	case port.OK:
		return nil
	case port.NotLeader:
		return registry.ErrNoLeader
	case port.NoSuchNode:
		return ErrUnknownMember
	case port.Refused:
		return fmt.Errorf("%w: %s", ErrMembership, r.Reason)
	}
	return fmt.Errorf("%w: %s", registry.ErrUnknownOutcome, r.Reason)
}

// Remove removes the node with the given name from the cluster.
func (s *Members) Remove(name string) JoinReply {
	if s.cfg.Leadership.Own() == nil {
		return JoinReply{Answer: port.NotLeader}
	}
	look, err := s.Committed()
	if err != nil {
		return JoinReply{Answer: port.Refused, Reason: err.Error()}
	}
	return s.Delete(look, name)
}

// Delete removes a node from the given configuration of the cluster.
func (s *Members) Delete(look *Configuration, name string) JoinReply {
	members := look.Servers
	i := slices.IndexFunc(members, func(m raft.Server) bool { return disk.NodeName(string(m.ID)) == name })
	if i < 0 {
		return JoinReply{Answer: port.NoSuchNode}
	}
	if err := s.agreeWithout(members[i], members); err != nil {
		return JoinReply{Answer: port.Refused, Reason: err.Error()}
	}
	// The replies count only for this configuration. If the members have changed since, Raft refuses.
	err := raftio.Within(context.Background(), removeLimit, func(patience time.Duration) raft.Future {
		return s.Raft.RemoveServer(members[i].ID, look.Index, patience)
	})
	if err == nil {
		s.cfg.Node.Log.Info("removed a node", "member", name)
	}
	return removalReply(err)
}

// removalReply separates the errors of a removal that certainly was not made from all others.
func removalReply(err error) JoinReply {
	switch {
	case err == nil:
		return JoinReply{Answer: port.OK}
	case errors.Is(err, raft.ErrNotLeader):
		return JoinReply{Answer: port.NotLeader}
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown), errors.Is(err, raftio.ErrNoResult):
		return JoinReply{Answer: port.Unknown, Reason: err.Error()}
	case errors.Is(err, raft.ErrEnqueueTimeout):
		reason := fmt.Sprintf("an earlier change of the members is not done yet (%v)", err)
		return JoinReply{Answer: port.Refused, Reason: reason}
	}
	return JoinReply{Answer: port.Refused, Reason: fmt.Sprintf("%v: look at the members again, then decide", err)}
}

// agreeWithout returns an error unless a majority of the remaining voters replies now. A removal holds from the
// moment it is in the leader's log: removing the wrong node while another one is down would leave a cluster that can
// never agree on anything again, not even on its members.
func (s *Members) agreeWithout(removed raft.Server, members []raft.Server) error {
	silent := map[string]string{} // names, by server id, of voters without a reply yet
	var addresses []string
	voters := 0
	for _, m := range members {
		if m.ID == removed.ID || m.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(m.ID) != s.self {
			silent[string(m.ID)] = disk.NodeName(string(m.ID))
			addresses = append(addresses, s.cfg.Nodes.AddressOf(m))
		}
	}
	if voters == 0 {
		return errors.New("no other node has a vote")
	}
	for _, a := range port.AskAll(context.Background(), addresses, s.askLimit(), s.stateAt) {
		// By id: the node at a lost node's address may be its successor, without a vote.
		delete(silent, a.Value.ServerID)
	}
	if up := voters - len(silent); up <= voters/2 {
		return fmt.Errorf("%d of the %d voters left would be up, which is no majority: start or remove %s first", up, voters, strings.Join(slices.Sorted(maps.Values(silent)), ", "))
	}
	return nil
}
