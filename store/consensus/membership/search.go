package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/disk"
	"github.com/seed-20419f34/rollcall/store/wait"
)

// Run finds or founds the cluster of a node that belongs to none, and checks, whenever no
// leader is known, that the cluster which the data directory belongs to is the one that is there.
func (s *Members) Run(ctx context.Context) {
	var logged string
	var searchedAt time.Time // for nodes of other clusters
	for ctx.Err() == nil {
		var err error
		switch {
		case s.cfg.Identity.Cluster() == "":
			err = s.Search(ctx)
		case s.cfg.Leadership.Leader() == nil:
			err = s.recognise(ctx)
		case time.Since(searchedAt) >= foreignInterval:
			s.setForeign(port.AskAll(ctx, distinct(s.cfg.Node.Join), s.askLimit(), s.stateAt))
			searchedAt = time.Now()
		}
		if err != nil && err.Error() != logged {
			logged = err.Error()
			s.cfg.Node.Log.Warn("not in touch with a cluster", "err", err)
		}
		wait.Pause(ctx, nil, searchInterval)
	}
}

// Search makes one attempt to become part of a cluster: of one that is there, or of a new one that the
// nodes of cluster.join found together (see founding.go).
func (s *Members) Search(ctx context.Context) error {
	if members, err := s.All(); err != nil {
		return err
	} else if len(members) > 0 { // a crash came between founding and writing it down
		return s.found(foundersIn(members))
	}
	look := s.survey(ctx)
	switch {
	case len(look.clusters) > 1:
		return fmt.Errorf("cluster.join names nodes of different clusters (%s): correct it", look.clusters)
	case len(look.clusters) == 1:
		return s.join(ctx, look.member)
	}
	if err := look.mayFound(s.cfg.Node.BootstrapExpect); err != nil {
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

// survey asks the nodes that cluster.join names how they are.
func (s *Members) survey(ctx context.Context) surroundings {
	look := surroundings{there: []disk.Founder{s.asFounder()}}
	addresses := distinct(s.cfg.Node.Join)
	own := slices.Contains(addresses, s.cfg.Node.ClusterAddr) || slices.Contains(addresses, s.cfg.Port.Addr().String())
	look.listed = len(addresses)
	for _, a := range port.AskAll(ctx, addresses, s.askLimit(), s.stateAt) {
		switch {
		case a.Err != nil:
		case a.Value.ServerID == s.self:
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
func (s *Members) join(ctx context.Context, st NodeState) error {
	if clusterOf(st.Founders) == st.Cluster && st.foundedBy(s.self) {
		return s.found(st.Founders)
	}
	if err := s.askIn(ctx); err != nil {
		return fmt.Errorf("join cluster %s: %w", st.Cluster, err)
	}
	s.cfg.Node.Log.Info("joined a cluster", "cluster", st.Cluster)
	return s.cfg.Identity.Adopt(st.Cluster)
}

func (st NodeState) foundedBy(serverID string) bool {
	return slices.ContainsFunc(st.Founders, func(f disk.Founder) bool { return f.ID == serverID })
}

// askIn asks the leader to take this node in, or to record its new address. The leader need not be in
// cluster.join: the others say where it is.
func (s *Members) askIn(ctx context.Context) error {
	err := registry.ErrNoLeader
	addresses := distinct(s.cfg.Node.Join)
	for i := 0; i < len(addresses); i++ {
		address := addresses[i]
		args := JoinArgs{ServerID: s.self, Addr: s.cfg.Port.Addr().String(), Boot: s.cfg.Identity.Start().Boot}
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

// recognise stops a node that started with the data of another cluster, or that was removed from
// its own; and it tells the cluster of a new address of this node. Where the cluster is,
// cluster.join says; where the log says it is does not count, for the log may be the wrong one.
func (s *Members) recognise(ctx context.Context) error {
	var foreign *port.ForeignError
	friends := 0
	replies := port.AskAll(ctx, distinct(s.cfg.Node.Join), s.askLimit(), s.stateAt)
	s.setForeign(replies)
	for _, a := range replies {
		switch {
		case errors.As(a.Err, &foreign):
		case a.Err == nil && s.cfg.Identity.Hello().Outdated(a.Value.Starts[s.self]) != nil:
			s.cfg.Outdated(s.cfg.Identity.Hello().Outdated(a.Value.Starts[s.self]))
			return nil
		case a.Err != nil || a.Value.ServerID == s.self || a.Value.Cluster == "":
		case s.isWithout(a.Value):
			s.cfg.Fail(fmt.Errorf("this node was removed from cluster %s: to take it in again, start it with an empty data directory", s.cfg.Identity.Cluster()))
			return nil
		default:
			friends++
		}
	}
	if foreign != nil && friends == 0 {
		s.cfg.Fail(fmt.Errorf("data directory %s belongs to cluster %s, but %w: use the data directory of this cluster, or correct cluster.join", s.cfg.Node.DataDir, s.cfg.Identity.Cluster(), foreign))
	}
	if friends == 0 || !s.moved() {
		return nil
	}
	if err := s.askIn(ctx); err != nil {
		return fmt.Errorf("tell the cluster that this node has moved to %s: %w", s.cfg.Port.Addr(), err)
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

// setForeign keeps which of the nodes that were asked belong to another cluster, and says so when it
// changes.
func (s *Members) setForeign(replies []port.Reply[NodeState]) {
	var found []ForeignNode
	for _, a := range replies {
		var foreign *port.ForeignError
		switch {
		case errors.As(a.Err, &foreign):
			found = append(found, ForeignNode{ID: disk.NodeName(foreign.Remote.ServerID), Address: a.Address, ClusterID: foreign.Remote.Cluster})
		case a.Err == nil && a.Value.Cluster != "" && a.Value.Cluster != s.cfg.Identity.Cluster():
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
		s.cfg.Node.Log.Warn("a node in cluster.join belongs to another cluster: keep one of the two clusters, and start the nodes of the other with empty data directories, or correct cluster.join",
			"node", f.ID, "address", f.Address, "its-cluster", f.ClusterID, "cluster", s.cfg.Identity.Cluster())
	}
}

// isWithout says that the node of a state leads the cluster and does not count this node among its
// committed members. A follower's word would not do: it may be behind, and this node have joined just now.
func (s *Members) isWithout(st NodeState) bool {
	return st.Leads && st.Term >= s.Raft.CurrentTerm() && !slices.Contains(st.Members, s.self)
}

// moved says that the cluster knows this node by another address than it has now.
func (s *Members) moved() bool {
	members, err := s.All()
	return err == nil && slices.ContainsFunc(members, func(m raft.Server) bool {
		return m.ID == raft.ServerID(s.self) && string(m.Address) != s.cfg.Port.Addr().String()
	})
}
