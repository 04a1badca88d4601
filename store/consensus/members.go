package consensus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/disk"
)

const (
	// searchInterval is the pause between two looks for a cluster.
	searchInterval = 200 * time.Millisecond
	// foreignInterval is the pause between two looks for nodes of other clusters while all is well.
	foreignInterval = 5 * time.Second
	// askAllWait bounds a question to all nodes in one place.
	askAllWait = 500 * time.Millisecond
	// oldAddressLimit bounds the question whether a node still runs where it was.
	oldAddressLimit = 2 * time.Second
	// changeLimit bounds a change of the cluster's configuration.
	changeLimit = 5 * time.Second
	// promoteAfter is how long a newcomer must keep up before it may vote, and promoteWithin how
	// many entries behind counts as keeping up: a voter that lacks the data would widen the quorum
	// before it can serve in it.
	promoteAfter  = 10 * time.Second
	promoteWithin = 100
)

// askLimit bounds a question to all nodes.
func (s *Raft) askLimit() time.Duration { return max(askAllWait, s.peers.AttemptLimit()) }

// changeRefused says why Raft made no change.
func changeRefused(err error) string {
	if errors.Is(err, raft.ErrEnqueueTimeout) {
		return fmt.Sprintf("an earlier change of the members is not done yet (%v)", err)
	}
	return fmt.Sprintf("%v: look at the members again, then decide", err)
}

// JoinArgs asks for membership.
type JoinArgs struct {
	ServerID, Addr string
	Boot           uint64 // the start of the node that asks
}

// JoinReply answers Join and Remove.
type JoinReply struct {
	Answer uint8
	Reason string
	Leader string // where to ask instead, with answerNotLeader; "": not known
}

// Join takes a node into the cluster, or notes its new address.
func (n *nodeCalls) Join(args JoinArgs, reply *JoinReply) error {
	*reply = n.s.takeIn(args)
	return nil
}

func (s *Raft) takeIn(args JoinArgs) JoinReply {
	if s.lead.Load() == nil {
		return JoinReply{Answer: answerNotLeader, Leader: s.leaderAddress()}
	}
	look, err := s.membership()
	if err != nil {
		return JoinReply{Answer: answerRefused, Reason: err.Error()}
	}
	if err := s.runsTwice(look, args); err != nil {
		return JoinReply{Answer: answerRunsTwice, Reason: err.Error()}
	}
	return s.takeInto(look, args)
}

// runsTwice returns an error if a node that says it has moved still runs at its old address: then it is a
// copy, whose log may lack what the original has stored, and must not get the original's vote.
func (s *Raft) runsTwice(look *membership, args JoinArgs) error {
	i := slices.IndexFunc(look.servers, func(m raft.Server) bool { return string(m.ID) == args.ServerID })
	if i < 0 || string(look.servers[i].Address) == args.Addr {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), oldAddressLimit)
	defer cancel()
	st, err := s.stateOf(ctx, look.servers[i])
	if err != nil && ctx.Err() == nil {
		// Perhaps the connection was one to the process before: it is forgotten now.
		st, err = s.stateOf(ctx, look.servers[i])
	}
	if err != nil || st.Boot == args.Boot {
		return nil // it has moved, or has two addresses
	}
	return fmt.Errorf("node %q runs at %s already: the process at %s was started with a copy of its data directory; give it an empty one, and a node.name of its own",
		disk.NodeName(args.ServerID), look.servers[i].Address, args.Addr)
}

// leaderAddress is where other nodes reach the leader, as far as this node knows.
func (s *Raft) leaderAddress() string {
	if l := s.leader.Load(); l != nil {
		return l.address
	}
	return ""
}

// takeInto takes a node into the cluster whose members a look has shown.
func (s *Raft) takeInto(look *membership, args JoinArgs) JoinReply {
	name := disk.NodeName(args.ServerID)
	add := s.raft.AddNonvoter
	for _, m := range look.servers {
		switch {
		case disk.NodeName(string(m.ID)) != name:
		case m.ID != raft.ServerID(args.ServerID):
			return JoinReply{Answer: answerRefused, Reason: fmt.Sprintf(
				"the cluster knows node %q with another data directory (server id %s): remove that one first (rollcall members remove %s), or choose another node.name", name, m.ID, name)}
		case m.Suffrage == raft.Voter:
			add = s.raft.AddVoter // it has moved: the same vote at another address
		}
	}
	f := add(raft.ServerID(args.ServerID), raft.ServerAddress(args.Addr), look.index, changeLimit)
	if err := raftio.Wait(context.Background(), f, changeLimit); err != nil {
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
	look, err := p.s.membership()
	if err != nil {
		return
	}
	for _, m := range look.servers {
		if m.Suffrage == raft.Nonvoter {
			p.consider(ctx, m, look.index)
		}
	}
}

// consider judges a newcomer that the configuration at an index has.
func (p *promoter) consider(ctx context.Context, m raft.Server, index uint64) {
	asked, cancel := context.WithTimeout(ctx, p.s.askLimit())
	defer cancel()
	st, err := p.s.stateOf(asked, m)
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
	p.promote(ctx, m, index)
}

// promote gives a newcomer its vote, unless the members have changed since it was considered: one that
// was removed must not come back with a vote.
func (p *promoter) promote(ctx context.Context, m raft.Server, index uint64) {
	if err := raftio.Wait(ctx, p.s.raft.AddVoter(m.ID, m.Address, index, changeLimit), changeLimit); err != nil {
		p.s.log.Warn("newcomer did not become a voter", "node", disk.NodeName(string(m.ID)), "err", err)
		return
	}
	p.s.log.Info("newcomer votes", "node", disk.NodeName(string(m.ID)))
}

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
	reply, err := port.Invoke[JoinReply](ctx, s.peers, s.peers.DialAddress(leader.id, leader.address), "Node.Remove", name)
	switch {
	case errors.Is(err, port.ErrNotSent):
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
	i := slices.IndexFunc(members, func(m raft.Server) bool { return disk.NodeName(string(m.ID)) == name })
	if i < 0 {
		return JoinReply{Answer: answerNoSuchNode}
	}
	if err := s.agreeWithout(members[i], members); err != nil {
		return JoinReply{Answer: answerRefused, Reason: err.Error()}
	}
	// Who answered counts for this look only. If somebody changed the members since, Raft refuses.
	err := raftio.Wait(context.Background(), s.raft.RemoveServer(members[i].ID, look.index, removeLimit), removeLimit)
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
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown), errors.Is(err, raftio.ErrNoResult):
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
			addresses = append(addresses, s.peers.AddressOf(m))
		}
	}
	if voters == 0 {
		return errors.New("no other node has a vote")
	}
	for _, a := range port.AskAll(context.Background(), addresses, s.askLimit(), s.stateAt) {
		// By its id: what answers at the address of a lost node may be its successor, without a vote.
		delete(silent, a.Value.ServerID)
	}
	if up := voters - len(silent); up <= voters/2 {
		return fmt.Errorf("%d of the %d voters left would be up, which is no majority: start or remove %s first", up, voters, namesOf(silent))
	}
	return nil
}

func namesOf(serverIDs map[string]bool) string {
	var names []string
	for id := range serverIDs {
		names = append(names, disk.NodeName(id))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
