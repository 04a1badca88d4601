package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// removeLimit bounds the leader's wait for a removal, so that with the questions before it the
// caller has its answer within answerWait.
const removeLimit = 3 * time.Second

// Errors of RemoveMember that a caller can act on.
var (
	// ErrUnknownMember: the cluster has no node of that name.
	ErrUnknownMember = errors.New("no such node")
	// ErrMembership: the change was refused and nothing was done; the text says why.
	ErrMembership = errors.New("membership was not changed")
)

// RemoveMember takes a node out of the cluster for good: its data directory is of no use any more,
// its name is free again. It works on any node and ends within answerWait. Errors: the two above,
// registry.ErrNoLeader (nothing was done) and registry.ErrUnknownOutcome.
func (s *Raft) RemoveMember(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	if err := s.askForRemoval(ctx, name); err != nil {
		return fmt.Errorf("remove node %q: %w", name, err)
	}
	return nil
}

func (s *Raft) askForRemoval(ctx context.Context, name string) error {
	if s.lead.Load() != nil {
		return s.putOut(name).removal()
	}
	leader := s.leader.Load()
	if leader == nil || leader.id == s.id.ServerID {
		return registry.ErrNoLeader
	}
	reply, err := invoke[JoinReply](ctx, s.peers, s.peers.dialAddress(leader.id, leader.address), "Node.Remove", name)
	switch {
	case errors.Is(err, errNotSent):
		return fmt.Errorf("%w: %w", registry.ErrNoLeader, err)
	case err != nil:
		return fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, err)
	}
	return reply.removal()
}

// removal is the answer to Remove as an error, nil if the node was removed.
func (r JoinReply) removal() error {
	switch r.Answer {
	case answerOK:
		return nil
	case answerNotLeader:
		return registry.ErrNoLeader
	case answerNoSuchNode:
		return ErrUnknownMember
	case answerRefused:
		return fmt.Errorf("%w: %s", ErrMembership, r.Reason)
	}
	return fmt.Errorf("%w: %s", registry.ErrUnknownOutcome, r.Reason)
}

// Remove takes the node of a name out of the cluster.
func (n *nodeCalls) Remove(name string, reply *JoinReply) error {
	*reply = n.s.putOut(name)
	return nil
}

func (s *Raft) putOut(name string) JoinReply {
	if s.lead.Load() == nil {
		return JoinReply{Answer: answerNotLeader}
	}
	look, err := s.membership()
	if err != nil {
		return JoinReply{Answer: answerRefused, Reason: err.Error()}
	}
	return s.putOutOf(look, name)
}

// putOutOf takes a node out of the cluster whose members a look has shown.
func (s *Raft) putOutOf(look *membership, name string) JoinReply {
	members := look.servers
	i := slices.IndexFunc(members, func(m raft.Server) bool { return nameOf(string(m.ID)) == name })
	if i < 0 {
		return JoinReply{Answer: answerNoSuchNode}
	}
	if err := s.agreeWithout(members[i], members); err != nil {
		return JoinReply{Answer: answerRefused, Reason: err.Error()}
	}
	// Who answered counts for this look only. If somebody changed the members since, Raft refuses.
	err := waitFuture(context.Background(), s.raft.RemoveServer(members[i].ID, look.index, removeLimit), removeLimit)
	if err == nil {
		s.log.Info("removed a node", "node", name)
	}
	return removalReply(err)
}

// removalReply tells the errors of a removal that certainly was not made from the others.
func removalReply(err error) JoinReply {
	switch {
	case err == nil:
		return JoinReply{Answer: answerOK}
	case errors.Is(err, raft.ErrNotLeader):
		return JoinReply{Answer: answerNotLeader}
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown), errors.Is(err, errNoAnswer):
		return JoinReply{Answer: answerUnknown, Reason: err.Error()}
	}
	return JoinReply{Answer: answerRefused, Reason: changeRefused(err)}
}

// agreeWithout returns an error unless a majority of the voters that would be left answers now. A
// removal holds from the moment it is in the leader's log: taking out the wrong node while another
// one is down would leave a cluster that can never agree on anything again, its members included.
func (s *Raft) agreeWithout(gone raft.Server, members []raft.Server) error {
	silent := map[string]bool{} // server ids of voters that have not answered yet
	var addresses []string
	voters := 0
	for _, m := range members {
		if m.ID == gone.ID || m.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(m.ID) != s.id.ServerID {
			silent[string(m.ID)] = true
			addresses = append(addresses, s.peers.addressOf(m))
		}
	}
	if voters == 0 {
		return errors.New("no other node has a vote")
	}
	for _, a := range askAll(context.Background(), addresses, s.askLimit(), s.stateAt) {
		// By its id: what answers at the address of a lost node may be its successor, without a vote.
		delete(silent, a.value.ServerID)
	}
	if up := voters - len(silent); up <= voters/2 {
		return fmt.Errorf("%d of the %d voters left would be up, which is no majority: start or remove %s first", up, voters, namesOf(silent))
	}
	return nil
}

func namesOf(serverIDs map[string]bool) string {
	var names []string
	for id := range serverIDs {
		names = append(names, nameOf(id))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
