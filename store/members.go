package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// findCluster finds or founds the cluster of a node that belongs to none, and checks, whenever no
// leader is known, that the cluster which the data directory belongs to is the one that is there.
func (s *Raft) findCluster(ctx context.Context) {
	var said string
	for ctx.Err() == nil {
		var err error
		if s.clusterID() == "" {
			err = s.search(ctx)
		} else if s.leader.Load() == nil {
			s.recognise(ctx)
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			s.log.Warn("not in a cluster yet", "err", err)
		}
		pause(ctx, nil, searchInterval)
	}
}

// search makes one attempt to become part of a cluster. A cluster is founded only by nodes that all
// see each other and of which none has ever been in one; every founder computes the same list.
func (s *Raft) search(ctx context.Context) error {
	if members, err := s.members(); err != nil {
		return err
	} else if len(members) > 0 { // a crash came between founding and writing it down
		return s.adoptCluster(clusterIDOf(idsOf(members)))
	}
	founders := []raft.Server{{ID: raft.ServerID(s.id.ServerID), Address: raft.ServerAddress(s.net.Addr().String())}}
	for _, a := range askAll(ctx, s.cfg.Join, askLimit, s.stateAt) {
		switch {
		case a.err != nil || a.value.ServerID == s.id.ServerID:
			continue
		case a.value.Cluster != "":
			return s.join(ctx, a.value)
		}
		founders = append(founders, raft.Server{ID: raft.ServerID(a.value.ServerID), Address: raft.ServerAddress(a.value.Addr)})
	}
	founders = uniqueServers(founders)
	if err := checkFounders(founders, s.cfg.BootstrapExpect); err != nil {
		return err
	}
	if err := s.raft.BootstrapCluster(raft.Configuration{Servers: founders}).Error(); err != nil {
		return fmt.Errorf("found the cluster: %w", err)
	}
	id := clusterIDOf(idsOf(founders))
	s.log.Info("founded a cluster", "cluster", id, "nodes", len(founders))
	return s.adoptCluster(id)
}

func checkFounders(founders []raft.Server, expect int) error {
	if len(founders) != expect {
		return fmt.Errorf("%d of %d nodes are there (cluster.bootstrap-expect); waiting for the others in cluster.join", len(founders), expect)
	}
	names := map[string]bool{}
	for _, f := range founders {
		name := nameOf(string(f.ID))
		if names[name] {
			return fmt.Errorf("two nodes are named %q: give each node a node.name of its own", name)
		}
		names[name] = true
	}
	return nil
}

func uniqueServers(servers []raft.Server) []raft.Server {
	slices.SortFunc(servers, func(a, b raft.Server) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	return slices.CompactFunc(servers, func(a, b raft.Server) bool { return a.ID == b.ID })
}

func idsOf(servers []raft.Server) []string {
	ids := make([]string, len(servers))
	for i, server := range servers {
		ids[i] = string(server.ID)
	}
	return ids
}

func (s *Raft) members() ([]raft.Server, error) {
	f := s.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return f.Configuration().Servers, nil
}

// join makes this node a member of the cluster that a node belongs to: it is one already if that
// node founded the cluster together with this one, else the leader has to take it in.
func (s *Raft) join(ctx context.Context, st NodeState) error {
	if slices.Contains(st.Members, s.id.ServerID) {
		return s.adoptCluster(st.Cluster)
	}
	err := fmt.Errorf("cluster %s has no leader that could take this node in", st.Cluster)
	for _, address := range s.cfg.Join {
		var reply JoinReply
		args := JoinArgs{ServerID: s.id.ServerID, Addr: s.net.Addr().String()}
		ctx, cancel := context.WithTimeout(ctx, changeLimit)
		callErr := s.peers.call(ctx, address, "Node.Join", args, &reply)
		cancel()
		switch {
		case callErr != nil || reply.Answer == answerNotLeader:
			continue
		case reply.Answer == answerOK:
			s.log.Info("joined a cluster", "cluster", st.Cluster)
			return s.adoptCluster(st.Cluster)
		}
		err = errors.New(reply.Reason)
	}
	return err
}

// recognise stops a node that started with the data of another cluster, or that was removed from
// its own. Where the cluster is, cluster.join says; where the log says it is does not count, for the
// log may be the wrong one.
func (s *Raft) recognise(ctx context.Context) {
	var foreign *errForeign
	friends := 0
	for _, a := range askAll(ctx, s.cfg.Join, askLimit, s.stateAt) {
		switch {
		case errors.As(a.err, &foreign):
		case a.err != nil || a.value.ServerID == s.id.ServerID || a.value.Cluster == "":
		case a.value.LeaderID != "" && len(a.value.Members) > 0 && !slices.Contains(a.value.Members, s.id.ServerID):
			s.fail(fmt.Errorf("this node was removed from cluster %s: to take it in again, start it with an empty data directory", s.clusterID()))
			return
		default:
			friends++
		}
	}
	if foreign != nil && friends == 0 {
		s.fail(fmt.Errorf("data directory %s belongs to cluster %s, but %w: use the data directory of this cluster, or correct cluster.join", s.cfg.DataDir, s.clusterID(), foreign))
	}
}

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

// Status is the cluster as one node sees it now.
type Status struct {
	ClusterID string
	Leader    string // node name; "" if none is known
	Term      uint64
	Nodes     []NodeStatus // sorted by name
}

// NodeStatus is one node. Of a node that does not answer only ID, Cluster and Role are known.
type NodeStatus struct {
	ID        string // node name
	HTTP      string // its HTTP address
	Cluster   string // its node-to-node address
	Role      string // leader, follower, candidate, learner (no vote yet), stopped or unreachable
	Applied   uint64 // newest log entry in its view
	Reachable bool
}

// Status asks every node how it is.
func (s *Raft) Status(ctx context.Context) Status {
	own := s.state()
	st := Status{ClusterID: own.Cluster, Leader: nameOf(own.LeaderID), Term: own.Term}
	members, err := s.members()
	if err != nil || len(members) == 0 {
		members = []raft.Server{{ID: raft.ServerID(own.ServerID), Address: raft.ServerAddress(own.Addr)}}
	}
	var addresses []string
	for _, m := range members {
		if string(m.ID) != own.ServerID {
			addresses = append(addresses, s.peers.addressOf(m))
		}
	}
	states := map[string]NodeState{own.ServerID: own}
	for _, a := range askAll(ctx, addresses, askLimit, s.stateAt) {
		if a.err == nil {
			states[a.value.ServerID] = a.value
		}
	}
	for _, m := range members {
		st.Nodes = append(st.Nodes, nodeStatus(m, states))
	}
	slices.SortFunc(st.Nodes, func(a, b NodeStatus) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return st
}

func nodeStatus(m raft.Server, states map[string]NodeState) NodeStatus {
	n := NodeStatus{ID: nameOf(string(m.ID)), Cluster: string(m.Address), Role: "unreachable"}
	state, ok := states[string(m.ID)]
	if !ok {
		return n
	}
	n.HTTP, n.Role, n.Applied, n.Reachable = state.HTTP, state.Role, state.Applied, true
	if m.Suffrage == raft.Nonvoter && n.Role == "follower" {
		n.Role = "learner"
	}
	return n
}
