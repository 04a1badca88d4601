package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// Run finds or founds a cluster for a node that belongs to none. For a node that belongs to one it checks, whenever
// no leader is known, that the nodes in cluster.join belong to the same one.
func (s *Members) Run(ctx context.Context) {
	var logged string
	var searchedAt time.Time // when it last searched for nodes of other clusters
	for ctx.Err() == nil {
		var err error
		switch {
		case s.cfg.Identity.Cluster() == "":
			err = s.Search(ctx)
		case s.cfg.Leadership.Leader() == nil:
			err = s.checkCluster(ctx)
		case time.Since(searchedAt) >= foreignInterval:
			s.setForeign(port.AskAll(ctx, s.joinAddresses(), s.askLimit(), s.stateAt))
			searchedAt = time.Now()
		}
		if err != nil && err.Error() != logged {
			logged = err.Error()
			s.cfg.Node.Log.Warn("not in touch with a cluster", "err", err)
		}
		wait.Pause(ctx, nil, searchInterval)
	}
}

// Search makes one attempt to become part of a cluster: an existing one, or a new one that the nodes of cluster.join
// found together (see founding.go).
func (s *Members) Search(ctx context.Context) error {
	members, err := s.All()
	if err != nil {
		return err
	}
	if len(members) > 0 { // a crash came between founding and writing it down
		founders := make([]disk.Founder, len(members))
		for i, m := range members {
			founders[i] = disk.Founder{ID: string(m.ID), Addr: string(m.Address)}
		}
		return s.joinAsFounder(founders)
	}
	seen := s.survey(ctx)
	switch {
	case len(seen.clusters) > 1:
		return fmt.Errorf("cluster.join names nodes of different clusters (%s): correct it", seen.clusters)
	case len(seen.clusters) == 1:
		return s.join(ctx, seen.member)
	}
	if s.cfg.Node.NoVote {
		return errors.New("there is no cluster to join, and this node founds none, because it must not vote (node.voter)")
	}
	if err := seen.checkFounding(s.cfg.Node.BootstrapExpect); err != nil {
		return err
	}
	if !s.mayPropose(seen.unfounded) {
		return fmt.Errorf("%d nodes are there; waiting for %s to found the cluster", len(seen.unfounded), disk.NodeName(seen.unfounded[0].ID))
	}
	return s.proposeFounders(ctx, seen.addresses)
}

// surroundings is what a node without a cluster sees.
type surroundings struct {
	clusters  []string       // ids of the clusters it sees
	member    NodeState      // a node of one of clusters
	unfounded []disk.Founder // the nodes without a cluster, including this one, sorted by id
	addresses []string       // addresses of the others among unfounded
	listed    int            // how many nodes cluster.join names, including this one
}

// survey asks the nodes that cluster.join names for their state.
func (s *Members) survey(ctx context.Context) surroundings {
	seen := surroundings{unfounded: []disk.Founder{s.asFounder()}}
	addresses := s.joinAddresses()
	own := slices.Contains(addresses, s.cfg.Node.ClusterAddr) || slices.Contains(addresses, s.cfg.Port.Addr().String())
	seen.listed = len(addresses)
	for _, r := range port.AskAll(ctx, addresses, s.askLimit(), s.stateAt) {
		switch {
		case r.Err != nil:
		case r.Value.ServerID == s.self:
			own = true
		case r.Value.Cluster != "":
			seen.member = r.Value
			seen.clusters = append(seen.clusters, r.Value.Cluster)
		case !r.Value.NoVote: // a node without a vote waits for a cluster to join
			seen.unfounded = append(seen.unfounded, disk.Founder{ID: r.Value.ServerID, Addr: r.Value.Addr})
			seen.addresses = append(seen.addresses, r.Address)
		}
	}
	if !own {
		seen.listed++
	}
	seen.unfounded, seen.clusters = uniqueFounders(seen.unfounded), distinct(seen.clusters)
	return seen
}

// checkFounding returns an error if the nodes it sees may not found a cluster: if so few were enough, two halves that
// do not see each other could found one each.
func (l surroundings) checkFounding(expect int) error {
	if least := l.listed/2 + 1; expect < least {
		return fmt.Errorf("there is no cluster to join, and this node founds none: cluster.bootstrap-expect %d is not more than half of the %d nodes in cluster.join; to found a cluster set it to %d or more, on each of them", expect, l.listed, least)
	}
	if len(l.unfounded) < expect {
		return fmt.Errorf("%d of %d nodes are there (cluster.bootstrap-expect); waiting for the others in cluster.join", len(l.unfounded), expect)
	}
	return checkNames(l.unfounded)
}

// distinct returns words sorted, each once.
func distinct(words []string) []string { return slices.Compact(slices.Sorted(slices.Values(words))) }

// join makes this node a member of the cluster of another node, whose state is st. If st names this node among the
// founders, this node is a member already; otherwise the leader must admit it. It is not enough that st lists this
// node as a member: the other node may know that from an entry that is never committed.
func (s *Members) join(ctx context.Context, st NodeState) error {
	founded := slices.ContainsFunc(st.Founders, func(f disk.Founder) bool { return f.ID == s.self })
	if founded && clusterOf(st.Founders) == st.Cluster {
		return s.joinAsFounder(st.Founders)
	}
	if err := s.askForAdmission(ctx); err != nil {
		return fmt.Errorf("join cluster %s: %w", st.Cluster, err)
	}
	s.cfg.Node.Log.Info("joined a cluster", "cluster", st.Cluster)
	s.cfg.Machine.Skip(st.Skipped)
	return s.cfg.Identity.Adopt(st.Cluster, st.Recovered, st.Skipped)
}

// askForAdmission asks the leader to admit this node, or to record its new address. The leader need not be in
// cluster.join: the nodes there name its address.
func (s *Members) askForAdmission(ctx context.Context) error {
	err := registry.ErrNoLeader
	addresses := s.joinAddresses()
	for i := 0; i < len(addresses); i++ {
		address := addresses[i]
		args := JoinArgs{ServerID: s.self, Addr: s.cfg.Port.Addr().String(), Boot: s.cfg.Identity.Start().Boot, Reads: s.Reads(), Skips: true}
		ctx, cancel := context.WithTimeout(ctx, changeLimit)
		reply, callErr := port.Invoke[JoinReply](ctx, s.cfg.Nodes, address, "Node.Join", args)
		cancel()
		switch {
		case callErr != nil:
			continue
		case reply.Answer == port.NotLeader:
			if reply.Leader != "" && !slices.Contains(addresses, reply.Leader) {
				addresses = append(addresses, reply.Leader)
			}
			continue
		case reply.Answer == port.OK:
			return nil
		case reply.Answer == port.RunsTwice:
			s.cfg.Fail(fmt.Errorf("data directory %s: %s", s.cfg.Node.DataDir, reply.Reason))
		}
		err = errors.New(reply.Reason)
	}
	return err
}

// checkCluster stops this node if it started with the data of another cluster, with an outdated copy of its data, or
// after it was removed from its cluster. It also reports a new address of this node to the cluster. It asks the nodes
// in cluster.join, not those in the log, because the log may be that of the wrong cluster.
func (s *Members) checkCluster(ctx context.Context) error {
	var foreign *port.ForeignError
	sameCluster := 0
	replies := port.AskAll(ctx, s.joinAddresses(), s.askLimit(), s.stateAt)
	s.setForeign(replies)
	for _, r := range replies {
		switch {
		case errors.As(r.Err, &foreign):
		case r.Err == nil && s.cfg.Identity.Hello().Outdated(r.Value.Starts[s.self]) != nil:
			s.cfg.Fail(fmt.Errorf("data directory %s: %w", s.cfg.Node.DataDir, s.cfg.Identity.Hello().Outdated(r.Value.Starts[s.self])))
			return nil
		case r.Err != nil || r.Value.ServerID == s.self || r.Value.Cluster == "":
		case r.Value.Leads && r.Value.Term >= s.Raft.CurrentTerm() && !slices.Contains(r.Value.Members, s.self):
			// A follower's state would prove nothing: the follower may lag, and this node may have joined just now.
			s.cfg.Fail(fmt.Errorf("this node was removed from cluster %s: to take it in again, start it with an empty data directory", s.cfg.Identity.Cluster()))
			return nil
		default:
			sameCluster++
		}
	}
	if foreign != nil && sameCluster == 0 {
		s.cfg.Fail(fmt.Errorf("data directory %s belongs to cluster %s, but %w: use the data directory of this cluster, or correct cluster.join", s.cfg.Node.DataDir, s.cfg.Identity.Cluster(), foreign))
	}
	if sameCluster == 0 {
		return nil
	}
	members, err := s.All()
	moved := err == nil && slices.ContainsFunc(members, func(m raft.Server) bool {
		return m.ID == raft.ServerID(s.self) && string(m.Address) != s.cfg.Port.Addr().String()
	})
	if !moved {
		return nil
	}
	if err := s.askForAdmission(ctx); err != nil {
		return fmt.Errorf("tell the cluster that this node has moved to %s: %w", s.cfg.Port.Addr(), err)
	}
	return nil
}

// ForeignNode is a node of another cluster at an address of cluster.join: there are two clusters where there should
// be one, or the list is wrong.
type ForeignNode struct {
	ID        string // node name
	Address   string // as in cluster.join
	ClusterID string
}

// setForeign stores which of the replying nodes belong to another cluster, and logs them when they change.
func (s *Members) setForeign(replies []port.Reply[NodeState]) {
	var found []ForeignNode
	for _, r := range replies {
		var foreign *port.ForeignError
		switch {
		case errors.As(r.Err, &foreign):
			found = append(found, ForeignNode{ID: disk.NodeName(foreign.Remote.ServerID), Address: r.Address, ClusterID: foreign.Remote.Cluster})
		case r.Err == nil && r.Value.Cluster != "" && r.Value.Cluster != s.cfg.Identity.Cluster():
			// That node belonged to no cluster when the connection was made, so the handshake let it pass.
			found = append(found, ForeignNode{ID: disk.NodeName(r.Value.ServerID), Address: r.Address, ClusterID: r.Value.Cluster})
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Address < found[j].Address })
	before := s.foreign.Swap(&found)
	if before != nil && slices.Equal(*before, found) {
		return
	}
	for _, f := range found {
		s.cfg.Node.Log.Warn("a node in cluster.join belongs to another cluster: keep one of the two clusters, and start the nodes of the other with empty data directories, or correct cluster.join",
			"other", f.ID, "address", f.Address, "its-cluster", f.ClusterID, "cluster", s.cfg.Identity.Cluster())
	}
}
