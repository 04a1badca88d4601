package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// The founders of a cluster are agreed on once, by Paxos for a single value. A node proposes a list of founders in
// two steps. In the first it asks the others to promise that they accept no older proposal, and learns which list
// they have accepted already: it must propose that list, which may have been decided. In the second it asks them to
// accept the list. The list is decided once cluster.bootstrap-expect nodes have accepted it. That number is more than
// half of the nodes that cluster.join names, so two lists cannot both be decided, whichever nodes see each other. And
// since a promise gives way to a newer proposal, no node that stops in the middle keeps the others from founding.
// docs/adr/0019 has the reasons.

// foundLimit bounds one step: every node syncs its promise to its disk before it replies.
const foundLimit = 2 * time.Second

// Of the nodes that see each other, the one with the lowest id proposes. Another one does after waiting between
// foundPatience and twice that.
const foundPatience = 2 * time.Second

// Steps of a proposal.
const (
	FoundPromise uint8 = iota
	FoundAccept
	FoundDecided
)

// FoundArgs is one step of a proposal.
type FoundArgs struct {
	Step     uint8
	Ballot   disk.Ballot
	Founders []disk.Founder // not with FoundPromise
}

// FoundReply is the reply to one step.
type FoundReply struct {
	OK       bool
	Self     disk.Founder
	Cluster  string // set if the replying node already belongs to a cluster
	Founding disk.Founding
}

// Found serves a step of another node's proposal.
func (s *Members) Found(args FoundArgs) FoundReply {
	reply, err := s.serveFound(args)
	reply.OK = reply.OK && err == nil
	return reply
}

func (s *Members) serveFound(args FoundArgs) (FoundReply, error) {
	reply := FoundReply{Self: s.asFounder()}
	if args.Step == FoundDecided {
		reply.OK = true
		return reply, s.joinAsFounder(args.Founders)
	}
	err := s.cfg.Identity.Change(func(id *disk.Identity) bool {
		reply.Cluster, reply.Founding = id.Cluster, id.Founding
		if id.Cluster != "" || args.Ballot.Compare(id.Founding.Promised) < 0 {
			return false
		}
		reply.OK = true
		id.Founding.Promised = args.Ballot
		if args.Step == FoundAccept {
			id.Founding.Accepted, id.Founding.Founders = args.Ballot, args.Founders
		}
		return true
	})
	return reply, err
}

func (s *Members) asFounder() disk.Founder {
	return disk.Founder{ID: s.self, Addr: s.cfg.Port.Addr().String()}
}

// mayPropose reports whether it is this node's turn to propose. there has the nodes without a cluster that it sees,
// including itself, sorted. Two nodes that propose at once only get in each other's way.
func (s *Members) mayPropose(there []disk.Founder) bool {
	if there[0].ID == s.self {
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

// proposeFounders makes one attempt to get a list of founders decided, with the nodes at the given addresses.
func (s *Members) proposeFounders(ctx context.Context, addresses []string) error {
	ballot := disk.Ballot{Round: max(s.cfg.Identity.Now().Founding.Promised.Round, s.foundRound) + 1, ServerID: s.self}
	promises, err := s.foundStep(ctx, addresses, FoundArgs{Step: FoundPromise, Ballot: ballot})
	if err != nil {
		return err
	}
	founders := foundersOf(promises)
	if err := checkNames(founders); err != nil {
		return err
	}
	if _, err := s.foundStep(ctx, addresses, FoundArgs{Step: FoundAccept, Ballot: ballot, Founders: founders}); err != nil {
		return err
	}
	s.cfg.Node.Log.Info("the founders of the cluster are agreed on", "cluster", clusterOf(founders), "nodes", len(founders))
	if err := s.joinAsFounder(founders); err != nil {
		return err
	}
	// A founder that misses this call learns the founders from another one, or by a proposal of its own.
	s.callFound(ctx, addresses, FoundArgs{Step: FoundDecided, Founders: founders})
	return nil
}

// foundersOf returns the list to propose: the newest that one of the nodes has accepted, otherwise all of them.
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

// foundStep takes one step at this node and those at the addresses. It returns the consenting replies if there are at
// least cluster.bootstrap-expect, otherwise an error.
func (s *Members) foundStep(ctx context.Context, addresses []string, args FoundArgs) ([]FoundReply, error) {
	own, err := s.serveFound(args)
	if err != nil {
		return nil, err
	}
	replies := []FoundReply{own}
	for _, a := range s.callFound(ctx, addresses, args) {
		if a.Err == nil && a.Value.Self.ID != s.self {
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
	if len(consent) < s.cfg.Node.BootstrapExpect {
		return nil, fmt.Errorf("%d of %d nodes agree on who founds the cluster (cluster.bootstrap-expect); trying again", len(consent), s.cfg.Node.BootstrapExpect)
	}
	return slices.Collect(maps.Values(consent)), nil
}

func (s *Members) callFound(ctx context.Context, addresses []string, args FoundArgs) []port.Reply[FoundReply] {
	return port.AskAll(ctx, addresses, foundLimit, func(ctx context.Context, address string) (FoundReply, error) {
		return port.Invoke[FoundReply](ctx, s.cfg.Nodes, address, "Node.Found", args)
	})
}

// joinAsFounder makes this node a member of the cluster whose founders are decided, if it is one of them and has no
// cluster yet. Every founder writes the same first log entry.
func (s *Members) joinAsFounder(founders []disk.Founder) error {
	among := slices.ContainsFunc(founders, func(f disk.Founder) bool { return f.ID == s.self })
	if !among || s.cfg.Identity.Cluster() != "" {
		return nil
	}
	servers := make([]raft.Server, len(founders))
	for i, f := range founders {
		servers[i] = raft.Server{ID: raft.ServerID(f.ID), Address: raft.ServerAddress(f.Addr)}
	}
	err := s.Raft.BootstrapCluster(raft.Configuration{Servers: servers}).Error()
	if err != nil && !errors.Is(err, raft.ErrCantBootstrap) { // already written
		return fmt.Errorf("found the cluster: %w", err)
	}
	id := clusterOf(founders)
	s.cfg.Node.Log.Info("founded a cluster", "cluster", id, "nodes", len(founders))
	return s.cfg.Identity.Change(func(own *disk.Identity) bool {
		own.Cluster, own.Founding.Founders = id, founders
		return true
	})
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
	sort.Slice(founders, func(i, j int) bool { return founders[i].ID < founders[j].ID })
	return slices.CompactFunc(founders, func(a, b disk.Founder) bool { return a.ID == b.ID })
}
