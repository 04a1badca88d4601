package consensus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/disk"
	"github.com/seed-20419f34/rollcall/store/wait"
)

// Who founds a cluster is decided once, by agreement (Paxos for a single value): a node proposes a list
// of founders in two steps. In the first it asks the others to promise that they accept no older
// proposal, and learns which list they have accepted already: that one it must propose, for it may have
// been decided. In the second it asks them to accept the list. The list is decided when
// cluster.bootstrap-expect nodes have accepted it. That number is more than half of the nodes that
// cluster.join names, so two lists cannot both be decided, whichever nodes see each other; and since a
// promise gives way to a newer proposal, no node that stops in the middle keeps the others from
// founding. docs/adr/0019 has the reasons.

// foundLimit bounds one step: every node syncs its promise to its disk before it answers.
const foundLimit = 2 * time.Second

// The node with the lowest id of those that see each other proposes. Another one does when it has waited
// for between foundPatience and twice that.
const foundPatience = 2 * time.Second

// Steps of a proposal.
const (
	foundPromise uint8 = iota
	foundAccept
	foundDecided
)

// FoundArgs is one step of a proposal.
type FoundArgs struct {
	Step     uint8
	Ballot   disk.Ballot
	Founders []disk.Founder // not of foundPromise
}

// FoundReply answers it.
type FoundReply struct {
	OK       bool
	Self     disk.Founder
	Cluster  string // the answering node belongs to one already
	Founding disk.Founding
}

// Found answers a step of another node's proposal.
func (n *nodeCalls) Found(args FoundArgs, reply *FoundReply) error {
	r, err := n.s.answerFound(args)
	*reply = r
	return err
}

func (s *Raft) answerFound(args FoundArgs) (FoundReply, error) {
	reply := FoundReply{Self: s.asFounder()}
	if args.Step == foundDecided {
		reply.OK = true
		return reply, s.found(args.Founders)
	}
	err := s.changeIdentity(func(id *disk.Identity) bool {
		reply.Cluster, reply.Founding = id.Cluster, id.Founding
		if id.Cluster != "" || args.Ballot.Compare(id.Founding.Promised) < 0 {
			return false
		}
		reply.OK = true
		id.Founding.Promised = args.Ballot
		if args.Step == foundAccept {
			id.Founding.Accepted, id.Founding.Founders = args.Ballot, args.Founders
		}
		return true
	})
	return reply, err
}

func (s *Raft) asFounder() disk.Founder {
	return disk.Founder{ID: s.id.ServerID, Addr: s.net.Addr().String()}
}

// mayPropose says whether it is this node's turn to propose; there are the nodes that it sees, itself
// among them, sorted. Two that propose at once only get in each other's way.
func (s *Raft) mayPropose(there []disk.Founder) bool {
	if there[0].ID == s.id.ServerID {
		return true
	}
	now := time.Now()
	if s.turn.IsZero() {
		s.turn = now.Add(foundPatience + rand.N(foundPatience))
	}
	if now.Before(s.turn) {
		return false
	}
	s.turn = time.Time{}
	return true
}

// proposeFounders makes one attempt to get a list of founders decided, with the nodes at some addresses.
func (s *Raft) proposeFounders(ctx context.Context, addresses []string) error {
	ballot := disk.Ballot{Round: max(s.standing.Load().Founding.Promised.Round, s.foundRound) + 1, ServerID: s.id.ServerID}
	promises, err := s.foundStep(ctx, addresses, FoundArgs{Step: foundPromise, Ballot: ballot})
	if err != nil {
		return err
	}
	founders := foundersOf(promises)
	if err := checkNames(founders); err != nil {
		return err
	}
	if _, err := s.foundStep(ctx, addresses, FoundArgs{Step: foundAccept, Ballot: ballot, Founders: founders}); err != nil {
		return err
	}
	s.log.Info("the founders of the cluster are agreed on", "cluster", clusterOf(founders), "nodes", len(founders))
	if err := s.found(founders); err != nil {
		return err
	}
	// A founder that does not hear of it learns it from one that did, or by a proposal of its own.
	s.tellFound(ctx, addresses, FoundArgs{Step: foundDecided, Founders: founders})
	return nil
}

// foundersOf is the list to propose: the newest that one of the nodes has accepted, else all of them.
func foundersOf(promises []FoundReply) []disk.Founder {
	newest := slices.MaxFunc(promises, func(a, b FoundReply) int { return a.Founding.Accepted.Compare(b.Founding.Accepted) })
	if newest.Founding.Accepted != (disk.Ballot{}) {
		return newest.Founding.Founders
	}
	founders := make([]disk.Founder, 0, len(promises))
	for _, p := range promises {
		founders = append(founders, p.Self)
	}
	return uniqueFounders(founders)
}

// foundStep takes one step at this node and those at the addresses, and returns the consenting answers
// of cluster.bootstrap-expect nodes and more, or an error.
func (s *Raft) foundStep(ctx context.Context, addresses []string, args FoundArgs) ([]FoundReply, error) {
	own, err := s.answerFound(args)
	if err != nil {
		return nil, err
	}
	replies := []FoundReply{own}
	for _, a := range s.tellFound(ctx, addresses, args) {
		if a.Err == nil && a.Value.Self.ID != s.id.ServerID {
			replies = append(replies, a.Value)
		}
	}
	consent := map[string]FoundReply{} // by server id: a node may have two addresses
	for _, r := range replies {
		s.foundRound = max(s.foundRound, r.Founding.Promised.Round)
		if r.OK {
			consent[r.Self.ID] = r
		}
	}
	if len(consent) < s.cfg.BootstrapExpect {
		return nil, fmt.Errorf("%d of %d nodes agree on who founds the cluster (cluster.bootstrap-expect); trying again", len(consent), s.cfg.BootstrapExpect)
	}
	agreed := make([]FoundReply, 0, len(consent))
	for _, r := range consent {
		agreed = append(agreed, r)
	}
	return agreed, nil
}

func (s *Raft) tellFound(ctx context.Context, addresses []string, args FoundArgs) []port.Reply[FoundReply] {
	return port.AskAll(ctx, addresses, foundLimit, func(ctx context.Context, address string) (FoundReply, error) {
		return port.Invoke[FoundReply](ctx, s.peers, address, "Node.Found", args)
	})
}

// found makes this node a member of the cluster that was decided on, if it is a founder. Every founder
// writes the same first log entry.
func (s *Raft) found(founders []disk.Founder) error {
	among := slices.ContainsFunc(founders, func(f disk.Founder) bool { return f.ID == s.id.ServerID })
	if !among || s.clusterID() != "" {
		return nil
	}
	servers := make([]raft.Server, len(founders))
	for i, f := range founders {
		servers[i] = raft.Server{ID: raft.ServerID(f.ID), Address: raft.ServerAddress(f.Addr)}
	}
	err := s.raft.BootstrapCluster(raft.Configuration{Servers: servers}).Error()
	if err != nil && !errors.Is(err, raft.ErrCantBootstrap) { // it has been written already
		return fmt.Errorf("found the cluster: %w", err)
	}
	id := clusterOf(founders)
	s.log.Info("founded a cluster", "cluster", id, "nodes", len(founders))
	return s.changeIdentity(func(own *disk.Identity) bool {
		own.Cluster, own.Founding.Founders = id, founders
		return true
	})
}

// foundersIn are the founders in the first configuration of a log, which found has written.
func foundersIn(servers []raft.Server) []disk.Founder {
	founders := make([]disk.Founder, len(servers))
	for i, server := range servers {
		founders[i] = disk.Founder{ID: string(server.ID), Addr: string(server.Address)}
	}
	return founders
}

func clusterOf(founders []disk.Founder) string {
	ids := make([]string, len(founders))
	for i, f := range founders {
		ids[i] = f.ID
	}
	return disk.ClusterIDOf(ids)
}

func checkNames(founders []disk.Founder) error {
	names := map[string]bool{}
	for _, f := range founders {
		name := disk.NodeName(f.ID)
		if names[name] {
			return fmt.Errorf("two nodes are named %q: give each node a node.name of its own", name)
		}
		names[name] = true
	}
	return nil
}

func uniqueFounders(founders []disk.Founder) []disk.Founder {
	slices.SortFunc(founders, func(a, b disk.Founder) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(founders, func(a, b disk.Founder) bool { return a.ID == b.ID })
}

// findCluster finds or founds the cluster of a node that belongs to none, and checks, whenever no
// leader is known, that the cluster which the data directory belongs to is the one that is there.
func (s *Raft) findCluster(ctx context.Context) {
	var said string
	var looked time.Time // for nodes of other clusters
	for ctx.Err() == nil {
		var err error
		switch {
		case s.clusterID() == "":
			err = s.search(ctx)
		case s.leader.Load() == nil:
			err = s.recognise(ctx)
		case time.Since(looked) >= foreignInterval:
			s.noteForeign(port.AskAll(ctx, distinct(s.cfg.Join), s.askLimit(), s.stateAt))
			looked = time.Now()
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			s.log.Warn("not in touch with a cluster", "err", err)
		}
		wait.Pause(ctx, nil, searchInterval)
	}
}

// search makes one attempt to become part of a cluster: of one that is there, or of a new one that the
// nodes of cluster.join found together (see founding.go).
func (s *Raft) search(ctx context.Context) error {
	if members, err := s.members(); err != nil {
		return err
	} else if len(members) > 0 { // a crash came between founding and writing it down
		return s.found(foundersIn(members))
	}
	look := s.lookAround(ctx)
	switch {
	case len(look.clusters) > 1:
		return fmt.Errorf("cluster.join names nodes of different clusters (%s): correct it", look.clusters)
	case len(look.clusters) == 1:
		return s.join(ctx, look.member)
	}
	if err := look.mayFound(s.cfg.BootstrapExpect); err != nil {
		return err
	}
	if !s.mayPropose(look.there) {
		return fmt.Errorf("%d nodes are there; waiting for %s to found the cluster", len(look.there), disk.NodeName(look.there[0].ID))
	}
	return s.proposeFounders(ctx, look.addresses)
}

// surroundings are what a node without a cluster sees.
type surroundings struct {
	clusters  []string       // ids of the clusters that are there
	member    NodeState      // a node of one
	there     []disk.Founder // nodes without a cluster, this one among them, sorted
	addresses []string       // of the others among them
	listed    int            // how many nodes cluster.join names, this one included
}

// lookAround asks the nodes that cluster.join names how they are.
func (s *Raft) lookAround(ctx context.Context) surroundings {
	look := surroundings{there: []disk.Founder{s.asFounder()}}
	addresses := distinct(s.cfg.Join)
	own := slices.Contains(addresses, s.cfg.ClusterAddr) || slices.Contains(addresses, s.net.Addr().String())
	look.listed = len(addresses)
	for _, a := range port.AskAll(ctx, addresses, s.askLimit(), s.stateAt) {
		switch {
		case a.Err != nil:
		case a.Value.ServerID == s.id.ServerID:
			own = true
		case a.Value.Cluster != "":
			look.member = a.Value
			look.clusters = append(look.clusters, a.Value.Cluster)
		default:
			look.there = append(look.there, disk.Founder{ID: a.Value.ServerID, Addr: a.Value.Addr})
			look.addresses = append(look.addresses, a.Address)
		}
	}
	if !own {
		look.listed++
	}
	look.there, look.clusters = uniqueFounders(look.there), distinct(look.clusters)
	return look
}

// mayFound returns why the nodes that are there may not found a cluster: so few could be there twice,
// each half without sight of the other.
func (l surroundings) mayFound(expect int) error {
	if least := l.listed/2 + 1; expect < least {
		return fmt.Errorf("no cluster is there to join, and this node founds none: cluster.bootstrap-expect %d is not more than half of the %d nodes in cluster.join; to found a cluster set it to %d or more, on each of them", expect, l.listed, least)
	}
	if len(l.there) < expect {
		return fmt.Errorf("%d of %d nodes are there (cluster.bootstrap-expect); waiting for the others in cluster.join", len(l.there), expect)
	}
	return checkNames(l.there)
}

func distinct(words []string) []string { return slices.Compact(slices.Sorted(slices.Values(words))) }

// join makes this node a member of the cluster that a node belongs to: it is one already if it was to
// found the cluster together with that one, else the leader has to take it in. That a node counts this
// one among its members is not enough, for it may know them from an entry that is never committed.
func (s *Raft) join(ctx context.Context, st NodeState) error {
	if clusterOf(st.Founders) == st.Cluster && st.foundedBy(s.id.ServerID) {
		return s.found(st.Founders)
	}
	if err := s.askIn(ctx); err != nil {
		return fmt.Errorf("join cluster %s: %w", st.Cluster, err)
	}
	s.log.Info("joined a cluster", "cluster", st.Cluster)
	return s.adoptCluster(st.Cluster)
}

func (st NodeState) foundedBy(serverID string) bool {
	return slices.ContainsFunc(st.Founders, func(f disk.Founder) bool { return f.ID == serverID })
}

// askIn asks whoever leads to take this node in, or to note its new address. The leader need not be in
// cluster.join: the others say where it is.
func (s *Raft) askIn(ctx context.Context) error {
	err := registry.ErrNoLeader
	addresses := distinct(s.cfg.Join)
	for i := 0; i < len(addresses); i++ {
		address := addresses[i]
		args := JoinArgs{ServerID: s.id.ServerID, Addr: s.net.Addr().String(), Boot: s.id.Boot}
		ctx, cancel := context.WithTimeout(ctx, changeLimit)
		reply, callErr := port.Invoke[JoinReply](ctx, s.peers, address, "Node.Join", args)
		cancel()
		switch {
		case callErr != nil:
			continue
		case reply.Answer == answerNotLeader:
			if reply.Leader != "" && !slices.Contains(addresses, reply.Leader) {
				addresses = append(addresses, reply.Leader)
			}
			continue
		case reply.Answer == answerOK:
			return nil
		case reply.Answer == answerRunsTwice:
			s.fail(fmt.Errorf("data directory %s: %s", s.cfg.DataDir, reply.Reason))
		}
		err = errors.New(reply.Reason)
	}
	return err
}

// recognise stops a node that started with the data of another cluster, or that was removed from
// its own; and it tells the cluster of a new address of this node. Where the cluster is,
// cluster.join says; where the log says it is does not count, for the log may be the wrong one.
func (s *Raft) recognise(ctx context.Context) error {
	var foreign *port.ForeignError
	friends := 0
	answers := port.AskAll(ctx, distinct(s.cfg.Join), s.askLimit(), s.stateAt)
	s.noteForeign(answers)
	for _, a := range answers {
		switch {
		case errors.As(a.Err, &foreign):
		case a.Err == nil && s.hello().Outdated(a.Value.Starts[s.id.ServerID]) != nil:
			s.stopOutdated(s.hello().Outdated(a.Value.Starts[s.id.ServerID]))
			return nil
		case a.Err != nil || a.Value.ServerID == s.id.ServerID || a.Value.Cluster == "":
		case s.isWithout(a.Value):
			s.fail(fmt.Errorf("this node was removed from cluster %s: to take it in again, start it with an empty data directory", s.clusterID()))
			return nil
		default:
			friends++
		}
	}
	if foreign != nil && friends == 0 {
		s.fail(fmt.Errorf("data directory %s belongs to cluster %s, but %w: use the data directory of this cluster, or correct cluster.join", s.cfg.DataDir, s.clusterID(), foreign))
	}
	if friends == 0 || !s.moved() {
		return nil
	}
	if err := s.askIn(ctx); err != nil {
		return fmt.Errorf("tell the cluster that this node has moved to %s: %w", s.net.Addr(), err)
	}
	return nil
}

// ForeignNode is a node of another cluster at an address of cluster.join: there are two clusters where there
// should be one, or the list is wrong.
type ForeignNode struct {
	ID        string // node name
	Address   string // in cluster.join
	ClusterID string
}

// noteForeign keeps which of the nodes that were asked belong to another cluster, and says so when it
// changes.
func (s *Raft) noteForeign(answers []port.Reply[NodeState]) {
	var found []ForeignNode
	for _, a := range answers {
		var foreign *port.ForeignError
		switch {
		case errors.As(a.Err, &foreign):
			found = append(found, ForeignNode{ID: disk.NodeName(foreign.Peer.ServerID), Address: a.Address, ClusterID: foreign.Peer.Cluster})
		case a.Err == nil && a.Value.Cluster != "" && a.Value.Cluster != s.clusterID():
			// It belonged to none when the connection was made.
			found = append(found, ForeignNode{ID: disk.NodeName(a.Value.ServerID), Address: a.Address, ClusterID: a.Value.Cluster})
		}
	}
	slices.SortFunc(found, func(a, b ForeignNode) int { return cmp.Compare(a.Address, b.Address) })
	before := s.foreign.Swap(&found)
	if before != nil && slices.Equal(*before, found) {
		return
	}
	for _, f := range found {
		s.log.Warn("a node in cluster.join belongs to another cluster: keep one of the two clusters, and start the nodes of the other with empty data directories, or correct cluster.join",
			"node", f.ID, "address", f.Address, "its-cluster", f.ClusterID, "cluster", s.clusterID())
	}
}

// isWithout says that the node of a state leads the cluster and does not count this node among its
// committed members. A follower's word would not do: it may be behind, and this node have joined just now.
func (s *Raft) isWithout(st NodeState) bool {
	return st.Leads && st.Term >= s.raft.CurrentTerm() && !slices.Contains(st.Members, s.id.ServerID)
}

// moved says that the cluster knows this node by another address than it has now.
func (s *Raft) moved() bool {
	members, err := s.members()
	return err == nil && slices.ContainsFunc(members, func(m raft.Server) bool {
		return m.ID == raft.ServerID(s.id.ServerID) && string(m.Address) != s.net.Addr().String()
	})
}
