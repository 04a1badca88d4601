package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
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
			err = s.recognise(ctx)
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			s.log.Warn("not in touch with a cluster", "err", err)
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

// members returns the servers of the newest configuration in this node's log, which may not be
// committed yet. What is to be changed is decided on the committed one, see membership.
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
	if err := s.askIn(ctx); err != nil {
		return fmt.Errorf("join cluster %s: %w", st.Cluster, err)
	}
	s.log.Info("joined a cluster", "cluster", st.Cluster)
	return s.adoptCluster(st.Cluster)
}

// askIn asks whoever leads to take this node in, or to note its new address.
func (s *Raft) askIn(ctx context.Context) error {
	err := registry.ErrNoLeader
	for _, address := range s.cfg.Join {
		args := JoinArgs{ServerID: s.id.ServerID, Addr: s.net.Addr().String()}
		ctx, cancel := context.WithTimeout(ctx, changeLimit)
		reply, callErr := invoke[JoinReply](ctx, s.peers, address, "Node.Join", args)
		cancel()
		switch {
		case callErr != nil || reply.Answer == answerNotLeader:
			continue
		case reply.Answer == answerOK:
			return nil
		}
		err = errors.New(reply.Reason)
	}
	return err
}

// recognise stops a node that started with the data of another cluster, or that was removed from
// its own; and it tells the cluster of a new address of this node. Where the cluster is,
// cluster.join says; where the log says it is does not count, for the log may be the wrong one.
func (s *Raft) recognise(ctx context.Context) error {
	var foreign *errForeign
	friends := 0
	for _, a := range askAll(ctx, s.cfg.Join, askLimit, s.stateAt) {
		switch {
		case errors.As(a.err, &foreign):
		case a.err != nil || a.value.ServerID == s.id.ServerID || a.value.Cluster == "":
		case s.isWithout(a.value):
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

// isWithout says that the node of a state leads the cluster and does not count this node among its
// members. A follower's word would not do: it may be behind, and this node have joined just now.
func (s *Raft) isWithout(st NodeState) bool {
	return st.LeaderID == st.ServerID && st.Term >= s.raft.CurrentTerm() && !slices.Contains(st.Members, s.id.ServerID)
}

// moved says that the cluster knows this node by another address than it has now.
func (s *Raft) moved() bool {
	members, err := s.members()
	return err == nil && slices.ContainsFunc(members, func(m raft.Server) bool {
		return m.ID == raft.ServerID(s.id.ServerID) && string(m.Address) != s.net.Addr().String()
	})
}
