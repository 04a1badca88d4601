package membership

import (
	"context"
	"sort"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// Status is the cluster as one node sees it now.
type Status struct {
	ClusterID string
	Leader    string // node name; "" if none is known
	Term      uint64
	Nodes     []NodeStatus  // sorted by name
	Foreign   []ForeignNode // nodes of other clusters, where there should be none
}

// NodeStatus describes one node. If it did not reply, only ID, Cluster, Role and Voter are known.
type NodeStatus struct {
	ID        string         // node name
	HTTP      string         // HTTP address
	Cluster   string         // node-to-node address
	Role      string         // leader, follower, candidate, learner (no vote), stopped or unreachable
	Applied   uint64         // newest log entry in its view
	Index     registry.Index // index of its view: a node that has reached a change's index has applied it
	Reachable bool
	Voter     bool
	Version   string // of its program
	Zone      string
	Contact   time.Duration // since it last heard from the leader; 0 if it leads, or has not heard from one
	Lag       uint64        // log entries that the furthest node has applied and this one has not
	DiskFree  int64         // bytes left on its disk
}

// Status asks every node for its state.
func (s *Members) Status(ctx context.Context) Status {
	members, states := s.askMembers(ctx)
	own := states[raft.ServerID(s.self)]
	st := Status{ClusterID: own.Cluster, Leader: disk.NodeName(own.LeaderID), Term: own.Term}
	if foreign := s.foreign.Load(); foreign != nil {
		st.Foreign = *foreign
	}
	var furthest uint64
	for _, m := range members {
		n := NodeStatus{ID: disk.NodeName(string(m.ID)), Cluster: string(m.Address), Role: "unreachable", Voter: m.Suffrage == raft.Voter}
		if state, ok := states[m.ID]; ok {
			n.HTTP, n.Role, n.Applied, n.Index, n.Reachable = state.HTTP, state.Role, state.Applied, state.Index, true
			n.Version, n.Zone, n.Contact, n.DiskFree = state.Reads.Version, state.Zone, state.Contact, state.DiskFree
		}
		if m.Suffrage == raft.Nonvoter && n.Role == "follower" {
			n.Role = "learner"
		}
		furthest = max(furthest, n.Applied)
		st.Nodes = append(st.Nodes, n)
	}
	for i := range st.Nodes {
		if n := &st.Nodes[i]; n.Reachable {
			n.Lag = furthest - n.Applied
		}
	}
	sort.Slice(st.Nodes, func(i, j int) bool { return st.Nodes[i].ID < st.Nodes[j].ID })
	return st
}

// askMembers asks all members for their states, see statesOf. A node that knows no members yet asks only itself, as a
// node without a vote.
func (s *Members) askMembers(ctx context.Context) ([]raft.Server, map[raft.ServerID]NodeState) {
	members, err := s.All()
	if err != nil || len(members) == 0 {
		members = []raft.Server{{Suffrage: raft.Nonvoter, ID: raft.ServerID(s.self), Address: raft.ServerAddress(s.cfg.Port.Addr().String())}}
	}
	return members, s.statesOf(ctx, members)
}

// Verify asks every node for its digests, and compares them.
func (s *Members) Verify(ctx context.Context) Comparison {
	members, states := s.askMembers(ctx)
	var nodes []replica
	for _, m := range members {
		state, ok := states[m.ID]
		nodes = append(nodes, replica{Name: disk.NodeName(string(m.ID)), Failed: !ok, Digests: state.Digests})
	}
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].Name < nodes[j].Name })
	return compareReplicas(nodes)
}
