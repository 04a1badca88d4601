package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/disk"
)

const (
	// searchInterval is the pause between searches for a cluster.
	searchInterval = 200 * time.Millisecond
	// foreignInterval is the pause between searches for nodes of other clusters while all is well.
	foreignInterval = 5 * time.Second
	// askAllWait bounds a question to all nodes within one site.
	askAllWait = 500 * time.Millisecond
	// oldAddressLimit bounds the question whether a node still runs at its old address.
	oldAddressLimit = 2 * time.Second
	// changeLimit bounds a change of the cluster's configuration.
	changeLimit = 5 * time.Second
)

// askLimit bounds a question to all nodes.
func (s *Members) askLimit() time.Duration { return max(askAllWait, s.cfg.Nodes.AttemptLimit()) }

// JoinArgs asks for membership.
type JoinArgs struct {
	ServerID, Addr string
	Boot           uint64 // which start of the asking node this is
	Reads          codec.Reads
	Skips          bool // the program understands skipped log entries
}

// JoinReply is the reply to Join and Remove.
type JoinReply struct {
	Answer port.Outcome
	Reason string
	Leader string // where to ask instead, with port.NotLeader; "" if not known
}

// Join admits a node to the cluster, or records its new address.
func (s *Members) Join(args JoinArgs) JoinReply {
	if s.cfg.Leadership.Own() == nil {
		reply := JoinReply{Answer: port.NotLeader}
		if l := s.cfg.Leadership.Leader(); l != nil {
			reply.Leader = l.Address
		}
		return reply
	}
	look, err := s.Committed()
	if err != nil {
		return JoinReply{Answer: port.Refused, Reason: err.Error()}
	}
	if now := s.cfg.Machine.Level(); !args.Reads.Reads(now) {
		return JoinReply{Answer: port.Refused, Reason: fmt.Sprintf("the cluster writes level %d of the formats, and node %q runs %s, which reads %d to %d: start version %s or a newer one",
			now, disk.NodeName(args.ServerID), args.Reads.Version, args.Reads.Oldest, args.Reads.Newest, codec.VersionOf(now))}
	}
	if skipped := s.cfg.Identity.Now().Skipped; len(skipped) > 0 && !args.Skips {
		return JoinReply{Answer: port.Refused, Reason: fmt.Sprintf("the cluster skips the log entries %v (rollcall recover --skip-entry), which the program of node %q cannot: start the version of the other nodes",
			skipped, disk.NodeName(args.ServerID))}
	}
	if err := s.runsTwice(look, args); err != nil {
		return JoinReply{Answer: port.RunsTwice, Reason: err.Error()}
	}
	return s.Add(look, args)
}

// runsTwice returns an error if a node that claims a new address still runs at its old one: then it is a copy, whose
// log may lack what the original has stored, and must not get the original's vote.
func (s *Members) runsTwice(look *Configuration, args JoinArgs) error {
	i := slices.IndexFunc(look.Servers, func(m raft.Server) bool { return string(m.ID) == args.ServerID })
	if i < 0 || string(look.Servers[i].Address) == args.Addr {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), oldAddressLimit)
	defer cancel()
	st, err := s.stateOf(ctx, look.Servers[i])
	if err != nil && ctx.Err() == nil {
		// Perhaps the connection led to an earlier process; the failed call dropped it.
		st, err = s.stateOf(ctx, look.Servers[i])
	}
	if err != nil || st.Boot == args.Boot {
		return nil // the node has moved, or has two addresses
	}
	return fmt.Errorf("node %q runs at %s already: the process at %s was started with a copy of its data directory; give it an empty one, and a node.name of its own",
		disk.NodeName(args.ServerID), look.Servers[i].Address, args.Addr)
}

// atLeader has the leader serve a call about members, by here if this node leads. Errors: registry.ErrNoLeader
// (nothing was done), registry.ErrUnknownOutcome, and those of JoinReply.Removal.
func (s *Members) atLeader(ctx context.Context, call string, args any, here func() JoinReply) (JoinReply, error) {
	if s.cfg.Leadership.Own() != nil {
		reply := here()
		return reply, reply.Removal()
	}
	leader := s.cfg.Leadership.Other()
	if leader == nil {
		return JoinReply{}, registry.ErrNoLeader
	}
	address := s.cfg.Nodes.DialAddress(leader.ID, leader.Address)
	reply, err := port.Invoke[JoinReply](ctx, s.cfg.Nodes, address, call, args)
	switch {
	case errors.Is(err, port.ErrNotSent):
		err = fmt.Errorf("%w: %w", registry.ErrNoLeader, err)
	case err != nil:
		err = fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, err)
	default:
		err = reply.Removal()
	}
	return reply, err
}

// Add adds a node to the given configuration of the cluster.
func (s *Members) Add(look *Configuration, args JoinArgs) JoinReply {
	name := disk.NodeName(args.ServerID)
	add := s.Raft.AddNonvoter
	for _, m := range look.Servers {
		switch {
		case disk.NodeName(string(m.ID)) != name:
		case m.ID != raft.ServerID(args.ServerID):
			return JoinReply{Answer: port.Refused, Reason: fmt.Sprintf(
				"the cluster knows node %q with another data directory (server id %s): remove that one first (rollcall members remove %s), or choose another node.name", name, m.ID, name)}
		case m.Suffrage == raft.Voter:
			add = s.Raft.AddVoter // the node has moved: the same vote at another address
		}
	}
	err := raftio.Within(context.Background(), changeLimit, func(patience time.Duration) raft.Future {
		return add(raft.ServerID(args.ServerID), raft.ServerAddress(args.Addr), look.Index, patience)
	})
	if err != nil {
		return JoinReply{Answer: port.Refused, Reason: fmt.Sprintf("take node %q in: %v", name, err)}
	}
	s.cfg.Node.Log.Info("member", "member", name, "address", args.Addr)
	return JoinReply{Answer: port.OK}
}
