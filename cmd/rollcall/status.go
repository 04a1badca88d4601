package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
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
		Short: "Remove a node from the cluster for good",
		Long: "Removes a node from the cluster for good. Its data directory is of no use any more. Its name is free for\n" +
			"a node with an empty one. If the node still runs, it stops by itself.",
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
		rows = append(rows, []string{n.ID, n.Role, n.HTTP, n.Cluster, unlessZero(n.Applied)})
	}
	return rows
}

// removed is a node that was removed.
type removed struct {
	Node string `json:"removed"`
}

func (r removed) Table() [][]string { return [][]string{{"removed", r.Node}} }

func newEventsCommand() *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:     "events",
		Short:   "Show the latest registrations and cancels, evictions among them, newest first",
		Example: "  rollcall events",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		events, err := cl.Events(ctx)
		return recentEvents{events}, err
	})
}

// recentEvents is registrations and cancels as one table.
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
