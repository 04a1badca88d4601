package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
)

func newStatusCommand() *cobra.Command {
	var c connection
	var check, watch bool
	var interval time.Duration
	cmd := c.command(&cobra.Command{
		Use:   "status",
		Short: "Show the cluster: its leader, its nodes and how far each has applied the log",
		Long: "Shows the cluster: its leader, its nodes and how far each has applied the log, and says in a sentence how it is.\n" +
			"With --check the exit code says the same: 0 it is well, 1 it is degraded or could not be asked, 2 it has no leader.\n" +
			"With --watch it shows the cluster again and again until Ctrl-C, with figures, what needs attention, and the applications in\n" +
			"the most trouble.",
		Example: "  rollcall status\n  rollcall status --check\n  rollcall status --watch\n  rollcall status -o json --addr http://127.0.0.1:8762",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		status, err := cl.Status(ctx)
		if check && err == nil {
			err = checked(status)
		}
		return clusterStatus{status}, err
	})
	once := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !watch:
			return once(cmd, args)
		case check:
			return cli.Usage(errors.New("give --watch or --check, and not both"))
		case interval < shortestInterval:
			return cli.Usage(fmt.Errorf("--interval: %v is shorter than %v", interval, shortestInterval))
		}
		w, err := c.newStatusWatch(cmd.OutOrStdout(), cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return w.run(cmd.Context(), interval)
	}
	cmd.Flags().BoolVar(&check, "check", false, "say by the exit code how the cluster is: 0 well, 1 degraded, 2 without a leader")
	cmd.Flags().BoolVar(&watch, "watch", false, "show the cluster, its figures and what needs attention again and again until Ctrl-C")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two requests of --watch, at least 200ms")
	return cmd
}

// checked returns a cluster's condition as an exit code, nil if it is well.
func checked(s client.Status) error {
	switch s.Condition {
	case "well":
		return nil
	case "leaderless":
		return cli.ExitStatus{Code: 2}
	}
	return cli.ExitStatus{Code: 1}
}

// clusterStatus shows a cluster's status as two tables: the cluster, and its nodes.
type clusterStatus struct{ client.Status }

func (s clusterStatus) Table() [][]string {
	rows := [][]string{
		{"CLUSTER", "MODE", "LEADER", "TERM", "QUORUM"},
		{s.ClusterID, s.Mode, s.Leader, strconv.FormatUint(s.Term, 10), cli.YesNo(s.Quorum)},
		{},
	}
	rows = append(rows, memberList(s.Nodes).Table()...)
	for _, sentence := range []string{s.Summary, s.Warning} {
		if sentence != "" {
			rows = append(rows, []string{}, []string{sentence})
		}
	}
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
		Short:   "List the nodes of the cluster, remove one, or hand leadership over",
		Example: "  rollcall members\n  rollcall members -o json",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		status, err := cl.Status(ctx)
		return append(memberList{}, status.Nodes...), err
	})
	cmd.AddCommand(newMembersRemoveCommand(), newMembersTransferCommand())
	return cmd
}

func newMembersTransferCommand() *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:   "transfer [NAME]",
		Short: "Hand leadership over to a node, or to the voter that is furthest",
		Long: "Hands leadership over to a node, or to the voter that is furthest. A node that lags is refused: no write would be\n" +
			"taken until it has caught up.",
		Example: "  rollcall members transfer\n  rollcall members transfer node2",
	}, cobra.MaximumNArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		to, err := cl.TransferLeadership(ctx, firstOf(args))
		return transferred{to}, err
	})
}

// transferred names the node that will lead.
type transferred struct {
	Leader string `json:"leader"`
}

func (t transferred) Table() [][]string { return [][]string{{"leader", t.Leader}} }

func newMembersRemoveCommand() *cobra.Command {
	var c connection
	var o operator
	cmd := c.command(&cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a node from the cluster for good",
		Long: "Removes a node from the cluster for good. Its data directory is of no use any more. Its name is free for\n" +
			"a node with an empty one. If the node still runs, it stops.",
		Example: "  rollcall members remove node3 --reason \"its disk is lost\"",
	}, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		return removed{args[0]}, cl.RemoveMember(ctx, args[0], o.act())
	})
	o.addFlags(cmd)
	return cmd
}

// memberList has the nodes of a cluster, an empty list rather than null.
type memberList []client.NodeStatus

func (l memberList) Table() [][]string {
	rows := [][]string{{"NODE", "ROLE", "HTTP", "NODE-TO-NODE", "APPLIED", "LAG", "CONTACT", "DISK", "ZONE", "VERSION"}}
	for _, n := range l {
		row := []string{n.ID, n.Role, n.HTTP, n.Cluster, unlessZero(n.Applied), strconv.FormatUint(n.Lag, 10), "", "", n.Zone, n.Version}
		if n.Role == "unreachable" {
			row[5] = ""
		}
		if n.Contact != 0 { // otherwise it is the leader, or that is not known
			row[6] = duration(n.Contact) + " ago"
		}
		if n.DiskFree != 0 {
			row[7] = fmt.Sprintf("%.1f GB free", float64(n.DiskFree)/1e9)
		}
		rows = append(rows, row)
	}
	return rows
}

// removed names a node that was removed.
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

// recentEvents shows registrations and cancels as one table.
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
	sort.SliceStable(all, func(i, j int) bool { return all[i].At > all[j].At })
	rows := [][]string{{"TIME", "EVENT", "APP", "ID"}}
	for _, ev := range all {
		rows = append(rows, []string{clockTime(ev.At), ev.what, ev.App, ev.ID})
	}
	return rows
}
