package consensus

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
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

// NodeStatus is one node. Of a node that does not answer only ID, Cluster and Role are known.
type NodeStatus struct {
	ID        string         // node name
	HTTP      string         // its HTTP address
	Cluster   string         // its node-to-node address
	Role      string         // leader, follower, candidate, learner (no vote yet), stopped or unreachable
	Applied   uint64         // newest log entry in its view
	Index     registry.Index // of its view: a node that has reached a change's index has applied it
	Reachable bool
}

// Status asks every node how it is.
func (s *Raft) Status(ctx context.Context) Status {
	own := s.state()
	st := Status{ClusterID: own.Cluster, Leader: disk.NodeName(own.LeaderID), Term: own.Term}
	if foreign := s.foreign.Load(); foreign != nil {
		st.Foreign = *foreign
	}
	members, err := s.members()
	if err != nil || len(members) == 0 {
		members = []raft.Server{{ID: raft.ServerID(own.ServerID), Address: raft.ServerAddress(own.Addr)}}
	}
	var addresses []string
	for _, m := range members {
		if string(m.ID) != own.ServerID {
			addresses = append(addresses, s.peers.AddressOf(m))
		}
	}
	states := map[string]NodeState{own.ServerID: own}
	for _, a := range port.AskAll(ctx, addresses, s.askLimit(), s.stateAt) {
		if a.Err == nil {
			states[a.Value.ServerID] = a.Value
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
	n := NodeStatus{ID: disk.NodeName(string(m.ID)), Cluster: string(m.Address), Role: "unreachable"}
	state, ok := states[string(m.ID)]
	if !ok {
		return n
	}
	n.HTTP, n.Role, n.Applied, n.Index, n.Reachable = state.HTTP, state.Role, state.Applied, state.Index, true
	if m.Suffrage == raft.Nonvoter && n.Role == "follower" {
		n.Role = "learner"
	}
	return n
}

// Health implements registry.Service.
//
// Suspended means that no lease can end now: no leader is known, or this node leads and all leases
// are within the grace that they were given when its leadership was established. A follower does not
// know how old the leadership is. Should leaders change faster than the shortest grace, every one of
// them says so until it loses its leadership.
func (s *Raft) Health() registry.Health {
	h := registry.Health{Ready: s.ready.Load(), Suspended: s.suspended()}
	h.Age = s.age(time.Now()) // on the leader too: it may have been paused, and another lead by now
	if s.lead.Load() != nil {
		h.Quorum, h.Leads, h.Clock = true, true, s.clock.Glance() // every fetch comes here
		return h
	}
	h.Quorum, h.Clock = s.leader.Load() != nil, s.machine.View().Stamp().Lease
	return h
}

func (s *Raft) suspended() bool {
	if l := s.lead.Load(); l != nil {
		return l.Young()
	}
	return s.leader.Load() == nil
}

// leaseTime returns the newest view and the lease clock (ms): the running one while this node leads,
// else the stamp of the newest applied entry.
func (s *Raft) leaseTime() (*registry.View, int64) {
	v := s.machine.View()
	if s.lead.Load() == nil {
		return v, v.Stamp().Lease
	}
	now, _ := s.clock.Read(time.Now())
	return v, now
}
