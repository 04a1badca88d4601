package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication"
	"github.com/seed-20419f34/rollcall/store/consensus"
)

func newStatusCommand() *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:     "status",
		Short:   "Show the cluster: its leader, its nodes and how far each has applied the log",
		Example: "  rollcall status\n  rollcall status -o json --addr http://127.0.0.1:8762",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		status, err := cl.Status(ctx)
		return clusterStatus{status}, err
	})
}

// clusterStatus is a cluster's status as two tables: the cluster, and its nodes.
type clusterStatus struct{ client.Status }

func (s clusterStatus) Table() [][]string {
	rows := [][]string{
		{"CLUSTER", "MODE", "LEADER", "TERM", "QUORUM"},
		{s.ClusterID, s.Mode, s.Leader, strconv.FormatUint(s.Term, 10), cli.YesNo(s.Quorum)},
		{},
	}
	rows = append(rows, memberList(s.Nodes).Table()...)
	if len(s.Foreign) == 0 {
		return rows
	}
	rows = append(rows, []string{}, []string{"OF ANOTHER CLUSTER", "CLUSTER ADDRESS", "ITS CLUSTER"})
	for _, f := range s.Foreign {
		rows = append(rows, []string{f.ID, f.Address, f.ClusterID})
	}
	return rows
}

func newMembersCommand() *cobra.Command {
	var c connection
	cmd := c.command(&cobra.Command{
		Use:     "members",
		Short:   "List the nodes of the cluster, or remove one",
		Example: "  rollcall members\n  rollcall members -o json",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		status, err := cl.Status(ctx)
		return append(memberList{}, status.Nodes...), err
	})
	cmd.AddCommand(newMembersRemoveCommand())
	return cmd
}

func newMembersRemoveCommand() *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:   "remove NAME",
		Short: "Take a node out of the cluster for good",
		Long: "Takes a node out of the cluster for good. Its data directory is of no use any more; its name is\n" +
			"free for a node with an empty one. A node that still runs stops by itself.",
		Example: "  rollcall members remove node3",
	}, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		return removed{args[0]}, cl.RemoveMember(ctx, args[0])
	})
}

// memberList is the nodes of a cluster, an empty list rather than null.
type memberList []client.NodeStatus

func (l memberList) Table() [][]string {
	rows := [][]string{{"NODE", "ROLE", "HTTP", "NODE-TO-NODE", "APPLIED"}}
	for _, n := range l {
		rows = append(rows, []string{n.ID, n.Role, n.HTTP, n.Cluster, applied(n)})
	}
	return rows
}

// removed names the node that was taken out.
type removed struct {
	Node string `json:"removed"`
}

func (r removed) Table() [][]string { return [][]string{{"removed", r.Node}} }

// applied is how far a node is; "" if that is not known.
func applied(n client.NodeStatus) string {
	if n.Applied == 0 {
		return ""
	}
	return strconv.FormatUint(n.Applied, 10)
}

func newEventsCommand() *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:     "events",
		Short:   "Show the latest registrations and cancels (evictions are among them), newest first",
		Example: "  rollcall events",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		events, err := cl.Events(ctx)
		return recentEvents{events}, err
	})
}

// recentEvents is both queues as one table.
type recentEvents struct{ client.Events }

func (e recentEvents) Table() [][]string {
	type event struct {
		client.Event
		what string
	}
	var all []event
	for _, r := range e.Registered {
		all = append(all, event{r, "registered"})
	}
	for _, c := range e.Canceled {
		all = append(all, event{c, "canceled"})
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(b.At, a.At) })
	rows := [][]string{{"TIME", "EVENT", "APP", "ID"}}
	for _, ev := range all {
		rows = append(rows, []string{time.UnixMilli(ev.At).UTC().Format(time.RFC3339), ev.what, ev.App, ev.ID})
	}
	return rows
}

// cluster shows the store's nodes to package httpd.
type cluster struct{ store *consensus.Raft }

// Status implements httpd.Cluster.
func (c cluster) Status(ctx context.Context) api.Status {
	s := c.store.Status(ctx)
	status := api.Status{Mode: modeCP, ClusterID: s.ClusterID, Leader: s.Leader, Term: s.Term}
	for _, n := range s.Nodes {
		status.Nodes = append(status.Nodes, nodeStatus(s.ClusterID, n))
	}
	for _, f := range s.Foreign {
		status.Foreign = append(status.Foreign, api.ForeignNode(f))
	}
	return status
}

func nodeStatus(epoch string, n consensus.NodeStatus) api.NodeStatus {
	shown := api.NodeStatus{ID: n.ID, HTTP: n.HTTP, Cluster: n.Cluster, Role: n.Role, Applied: n.Applied}
	if n.Reachable {
		shown.Index = formatIndex(epoch, n.Index)
	}
	return shown
}

// formatIndex is the form of an index on the wire.
func formatIndex(epoch string, index registry.Index) string {
	return epoch + "-" + strconv.FormatUint(uint64(index), 10)
}

// members lets package httpd change the store's nodes.
type members struct {
	store interface {
		RemoveMember(ctx context.Context, name string) error
	}
}

// Remove implements httpd.Members.
func (m members) Remove(ctx context.Context, name string) error {
	err := m.store.RemoveMember(ctx, name)
	switch {
	case errors.Is(err, consensus.ErrUnknownMember):
		return inTermsOf{err, httpd.ErrUnknownMember}
	case errors.Is(err, consensus.ErrMembership):
		return inTermsOf{err, httpd.ErrMembership}
	}
	return err
}

// inTermsOf is an error that another package knows as a sentinel of its own.
type inTermsOf struct {
	error
	sentinel error
}

// Is makes errors.Is find the sentinel.
func (e inTermsOf) Is(target error) bool { return target == e.sentinel }

// Unwrap returns the error in the words of who made it.
func (e inTermsOf) Unwrap() error { return e.error }

// drainingService is a registry that is not ready any more once the node shuts down, so that load
// balancers leave before the port closes.
type drainingService struct {
	registry.Service
	draining *atomic.Bool
}

// Health implements registry.Service.
func (s drainingService) Health() registry.Health {
	h := s.Service.Health()
	h.Ready = h.Ready && !s.draining.Load()
	return h
}

// nodes shows the nodes of a datacenter without consensus to package httpd: each knows the others as
// peers.
type nodes struct {
	name, http, datacenter string
	replicator             *replication.Replicator
	service                registry.Service
}

// Status implements httpd.Cluster.
func (n nodes) Status(ctx context.Context) api.Status {
	status := api.Status{Mode: modeAP, ClusterID: n.datacenter}
	own := api.NodeStatus{ID: n.name, HTTP: n.http, Role: "serving"}
	if v, err := n.service.View(ctx, registry.Stale); err == nil {
		own.Index, own.Applied = formatIndex(v.Epoch(), v.Index()), uint64(v.Index())
	}
	status.Nodes = append(status.Nodes, own)
	for _, p := range n.replicator.Status() {
		if p.Kind == "node" {
			status.Nodes = append(status.Nodes, peerNode(p))
		}
	}
	slices.SortFunc(status.Nodes, func(a, b api.NodeStatus) int { return strings.Compare(a.HTTP, b.HTTP) })
	return status
}

// peerNode is another node as this one knows it: by its address, and by whether it could be reached.
func peerNode(p api.Peer) api.NodeStatus {
	n := api.NodeStatus{ID: p.Name, HTTP: p.Name, Role: "serving"}
	if p.State == replication.StateFailing {
		n.Role = "unreachable"
	}
	return n
}
