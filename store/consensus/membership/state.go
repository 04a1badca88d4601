package membership

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// NodeState is what a node says of itself.
type NodeState struct {
	ServerID  string
	Boot      uint64 // which start this is
	Cluster   string // "" while it belongs to none
	Addr      string // node-to-node, as advertised
	HTTP      string
	Role      string
	LeaderID  string
	Term      uint64
	Applied   uint64            // newest log entry in its view
	Index     registry.Index    // index of its view
	LastIndex uint64            // newest log entry on its disk
	Leads     bool              // whether it is the established leader
	Members   []string          // server ids of the committed configuration that it knows
	Starts    map[string]uint64 // newest start of each member that it knows of
	Founders  []disk.Founder    // founders of its cluster, if it is one of them
	Reads     codec.Reads       // levels that its program reads
	Zone      string
	NoVote    bool          // whether it must not vote
	Contact   time.Duration // since it last heard from the leader; 0 if it leads, or has not heard from one
	DiskFree  int64         // bytes left on its disk
	Digests   []Digest      // of its state, oldest first
	Recovered uint64        // disk.Identity.Recovered
	Skipped   []uint64      // disk.Identity.Skipped
}

// State returns what this node says of itself.
func (s *Members) State() NodeState {
	st := NodeState{
		Leads:     s.cfg.Leadership.Own() != nil,
		ServerID:  s.self,
		Boot:      s.cfg.Identity.Start().Boot,
		Cluster:   s.cfg.Identity.Cluster(),
		Addr:      s.cfg.Port.Addr().String(),
		HTTP:      s.cfg.Node.HTTPAdvertise,
		Role:      roles[s.Raft.State()],
		Term:      s.Raft.CurrentTerm(),
		Applied:   s.cfg.Machine.Index(),
		Index:     s.cfg.Machine.View().Index(),
		LastIndex: s.Raft.LastIndex(),
		Reads:     s.Reads(),
		Zone:      s.cfg.Node.Zone,
		NoVote:    s.cfg.Node.NoVote,
		DiskFree:  s.cfg.Node.DiskFree(),
		Digests:   s.cfg.Digests.Newest(),
		Recovered: s.cfg.Identity.Now().Recovered,
		Skipped:   s.cfg.Identity.Now().Skipped,
	}
	if l := s.cfg.Leadership.Leader(); l != nil {
		st.LeaderID = l.ID
	}
	if heard := s.Raft.LastContact(); !st.Leads && !heard.IsZero() {
		st.Contact = time.Since(heard)
	}
	if look, err := s.Committed(); err == nil {
		st.Starts = map[string]uint64{}
		for _, m := range look.Servers {
			id := string(m.ID)
			st.Members = append(st.Members, id)
			st.Starts[id] = s.cfg.Machine.Boot(id)
		}
	}
	if st.Cluster != "" {
		st.Founders = s.cfg.Identity.Now().Founding.Founders
	}
	return st
}

var roles = map[raft.RaftState]string{
	raft.Leader:    "leader",
	raft.Follower:  "follower",
	raft.Candidate: "candidate",
	raft.Shutdown:  "stopped",
}

// statesOf asks members for their states, by server id. Members that do not reply are left out; this node never is.
func (s *Members) statesOf(ctx context.Context, members []raft.Server) map[raft.ServerID]NodeState {
	states := map[raft.ServerID]NodeState{raft.ServerID(s.self): s.State()}
	var addresses []string
	for _, m := range members {
		if string(m.ID) != s.self {
			addresses = append(addresses, s.cfg.Nodes.AddressOf(m))
		}
	}
	for _, a := range port.AskAll(ctx, addresses, s.askLimit(), s.stateAt) {
		if a.Err == nil {
			states[raft.ServerID(a.Value.ServerID)] = a.Value
		}
	}
	return states
}

// stateOf asks a member for its state.
func (s *Members) stateOf(ctx context.Context, m raft.Server) (NodeState, error) {
	address := s.cfg.Nodes.AddressOf(m)
	st, err := s.stateAt(ctx, address)
	if err == nil && st.ServerID != string(m.ID) {
		err = &port.OtherNodeError{Asked: string(m.ID), Replied: st.ServerID, Address: address}
	}
	return st, err
}

// stateAt asks the node at an address for its state.
func (s *Members) stateAt(ctx context.Context, address string) (NodeState, error) {
	return port.Invoke[NodeState](ctx, s.cfg.Nodes, address, "Node.State", struct{}{})
}
