package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/raft"
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

// Founder is a node that founds a cluster. It and the other types of the founding are exported because
// net/rpc asks for it.
type Founder struct {
	ID   string `json:"id"` // server id
	Addr string `json:"address"`
}

// Ballot numbers a proposal; two nodes never use the same.
type Ballot struct {
	Round    uint64 `json:"round"`
	ServerID string `json:"server_id"`
}

func (b Ballot) compare(o Ballot) int {
	return cmp.Or(cmp.Compare(b.Round, o.Round), cmp.Compare(b.ServerID, o.ServerID))
}

// Founding is what a node has promised. It is part of the identity, because it must outlive a crash.
type Founding struct {
	Promised Ballot    `json:"promised"` // no older proposal is accepted
	Accepted Ballot    `json:"accepted"` // of the list below; zero: none was accepted
	Founders []Founder `json:"founders,omitempty"`
}

// Steps of a proposal.
const (
	foundPromise uint8 = iota
	foundAccept
	foundDecided
)

// FoundArgs is one step of a proposal.
type FoundArgs struct {
	Step     uint8
	Ballot   Ballot
	Founders []Founder // not of foundPromise
}

// FoundReply answers it.
type FoundReply struct {
	OK       bool
	Self     Founder
	Cluster  string // the answering node belongs to one already
	Founding Founding
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
	err := s.changeIdentity(func(id *identity) bool {
		reply.Cluster, reply.Founding = id.Cluster, id.Founding
		if id.Cluster != "" || args.Ballot.compare(id.Founding.Promised) < 0 {
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

func (s *Raft) asFounder() Founder {
	return Founder{ID: s.id.ServerID, Addr: s.net.Addr().String()}
}

// mayPropose says whether it is this node's turn to propose; there are the nodes that it sees, itself
// among them, sorted. Two that propose at once only get in each other's way.
func (s *Raft) mayPropose(there []Founder) bool {
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
	ballot := Ballot{Round: max(s.standing.Load().Founding.Promised.Round, s.foundRound) + 1, ServerID: s.id.ServerID}
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
func foundersOf(promises []FoundReply) []Founder {
	newest := slices.MaxFunc(promises, func(a, b FoundReply) int { return a.Founding.Accepted.compare(b.Founding.Accepted) })
	if newest.Founding.Accepted != (Ballot{}) {
		return newest.Founding.Founders
	}
	founders := make([]Founder, 0, len(promises))
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
		if a.err == nil && a.value.Self.ID != s.id.ServerID {
			replies = append(replies, a.value)
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

func (s *Raft) tellFound(ctx context.Context, addresses []string, args FoundArgs) []answer[FoundReply] {
	return askAll(ctx, addresses, foundLimit, func(ctx context.Context, address string) (FoundReply, error) {
		return invoke[FoundReply](ctx, s.peers, address, "Node.Found", args)
	})
}

// found makes this node a member of the cluster that was decided on, if it is a founder. Every founder
// writes the same first log entry.
func (s *Raft) found(founders []Founder) error {
	among := slices.ContainsFunc(founders, func(f Founder) bool { return f.ID == s.id.ServerID })
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
	return s.changeIdentity(func(own *identity) bool {
		own.Cluster, own.Founding.Founders = id, founders
		return true
	})
}

// foundersIn are the founders in the first configuration of a log, which found has written.
func foundersIn(servers []raft.Server) []Founder {
	founders := make([]Founder, len(servers))
	for i, server := range servers {
		founders[i] = Founder{ID: string(server.ID), Addr: string(server.Address)}
	}
	return founders
}

func clusterOf(founders []Founder) string {
	ids := make([]string, len(founders))
	for i, f := range founders {
		ids[i] = f.ID
	}
	return clusterIDOf(ids)
}

func checkNames(founders []Founder) error {
	names := map[string]bool{}
	for _, f := range founders {
		name := nameOf(f.ID)
		if names[name] {
			return fmt.Errorf("two nodes are named %q: give each node a node.name of its own", name)
		}
		names[name] = true
	}
	return nil
}

func uniqueFounders(founders []Founder) []Founder {
	slices.SortFunc(founders, func(a, b Founder) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(founders, func(a, b Founder) bool { return a.ID == b.ID })
}
