package node

import (
	"context"
	"errors"
	"sort"
	"strconv"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/internal/world"
	"github.com/seed-20419f34/rollcall/replication"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
)

// cluster is the store's nodes as an web.Cluster.
type cluster struct{ members *membership.Members }

// Status implements web.Cluster.
func (c cluster) Status(ctx context.Context) api.Status {
	s := c.members.Status(ctx)
	status := api.Status{Mode: config.CP, ClusterID: s.ClusterID, Leader: s.Leader, Term: s.Term}
	for _, n := range s.Nodes {
		status.Nodes = append(status.Nodes, nodeStatus(s.ClusterID, n))
	}
	describe(&status)
	for _, f := range s.Foreign {
		status.Foreign = append(status.Foreign, api.ForeignNode(f))
	}
	return status
}

func nodeStatus(epoch string, n membership.NodeStatus) api.NodeStatus {
	shown := api.NodeStatus{
		ID: n.ID, HTTP: n.HTTP, Cluster: n.Cluster, Role: n.Role, Applied: n.Applied, Voter: n.Voter,
		Version: n.Version, Zone: n.Zone, Contact: n.Contact.Milliseconds(), Lag: n.Lag, DiskFree: n.DiskFree,
	}
	if n.Reachable {
		shown.Index = formatIndex(epoch, n.Index)
	}
	return shown
}

// formatIndex returns the form of an index on the wire.
func formatIndex(epoch string, index registry.Index) string {
	return epoch + "-" + strconv.FormatUint(uint64(index), 10)
}

// members is the store's nodes as own.Members.
type members struct {
	store interface {
		RemoveMember(ctx context.Context, name string) error
		Transfer(ctx context.Context, name string) (to string, err error)
		Verify(ctx context.Context) membership.Comparison
	}
}

// Verify implements own.Members.
func (m members) Verify(ctx context.Context) api.Verification {
	c := m.store.Verify(ctx)
	v := api.Verification{Verdict: string(c.Verdict), Sentence: c.String(), Index: c.Index, Age: c.Age.Milliseconds(), Nodes: []api.VerifiedNode{}}
	for _, n := range c.Nodes {
		shown := api.VerifiedNode{ID: n.Name, Differs: n.Differs, Sentence: n.String()}
		if n.Digest != nil {
			shown.Index, shown.Digest = n.Digest.Index, n.Digest.Sum()
		}
		v.Nodes = append(v.Nodes, shown)
	}
	return v
}

// Remove implements own.Members.
func (m members) Remove(ctx context.Context, name string) error {
	return memberError(m.store.RemoveMember(ctx, name))
}

// Transfer implements own.Members.
func (m members) Transfer(ctx context.Context, name string) (to string, err error) {
	to, err = m.store.Transfer(ctx, name)
	return to, memberError(err)
}

// memberError converts an error about members into one that package httpd knows.
func memberError(err error) error {
	switch {
	case errors.Is(err, membership.ErrUnknownMember):
		return sentinelError{err, own.ErrUnknownMember}
	case errors.Is(err, membership.ErrMembership):
		return sentinelError{err, own.ErrMembership}
	}
	return err
}

// sentinelError makes errors.Is match another package's sentinel.
type sentinelError struct {
	error
	sentinel error
}

// Is makes errors.Is find the sentinel.
func (e sentinelError) Is(target error) bool { return target == e.sentinel }

// Unwrap returns the error in the words of the package that made it.
func (e sentinelError) Unwrap() error { return e.error }

// nodes is the nodes of a datacenter without consensus as an web.Cluster: each node knows the others as peers.
type nodes struct {
	own        api.NodeStatus // this node, without what changes
	datacenter string
	diskFree   func() int64
	replicator *replication.Replicator
	service    registry.Service
	world      *world.World
}

// Status implements web.Cluster.
func (n nodes) Status(ctx context.Context) api.Status {
	status := api.Status{Mode: config.AP, ClusterID: n.datacenter}
	own := n.own
	own.Role, own.DiskFree = "serving", n.diskFree()
	if v, err := n.service.View(ctx, registry.Stale); err == nil {
		own.Index, own.Applied = formatIndex(v.Epoch(), v.Index()), uint64(v.Index())
	}
	status.Nodes = append(status.Nodes, own)
	versions := map[string]string{}
	for _, l := range n.replicator.Levels() {
		versions[l.Name] = l.Version
	}
	for _, p := range n.replicator.Status() {
		if p.Kind == "node" {
			peer := api.NodeStatus{ID: p.Name, HTTP: p.Name, Role: "serving", Version: versions[p.Name]}
			if p.LastSuccess != 0 {
				peer.Contact = max(n.world.Now().UnixMilli()-p.LastSuccess, 0)
			}
			if p.State == replication.StateFailing {
				peer.Role = unreachable
			}
			status.Nodes = append(status.Nodes, peer)
		}
	}
	describe(&status)
	sort.Slice(status.Nodes, func(i, j int) bool { return status.Nodes[i].HTTP < status.Nodes[j].HTTP })
	return status
}
