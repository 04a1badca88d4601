package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func newStatusCommand() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the cluster: its leader, its nodes and how far each has applied the log",
		Example: "  rollcall status\n  rollcall status -o json --addr http://127.0.0.1:8762",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.open(nil)
			if err != nil {
				return err
			}
			status, err := cl.Status(cmd.Context())
			if err != nil {
				return err
			}
			return c.out.Print(cmd.OutOrStdout(), clusterStatus{status})
		},
	}
	c.addFlags(cmd)
	return cmd
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
