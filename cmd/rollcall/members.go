package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func newMembersCommand() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:     "members",
		Short:   "List the nodes of the cluster, or remove one",
		Example: "  rollcall members\n  rollcall members -o json",
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
			return c.out.Print(cmd.OutOrStdout(), append(memberList{}, status.Nodes...))
		},
	}
	c.addFlags(cmd)
	cmd.AddCommand(newMembersRemoveCommand())
	return cmd
}

func newMembersRemoveCommand() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a node out of the cluster for good",
		Long: "Takes a node out of the cluster for good. Its data directory is of no use any more; its name is\n" +
			"free for a node with an empty one. A node that still runs stops by itself.",
		Example: "  rollcall members remove node3",
		Args:    cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.open(nil)
			if err != nil {
				return err
			}
			if err := cl.RemoveMember(cmd.Context(), args[0]); err != nil {
				return err
			}
			return c.out.Print(cmd.OutOrStdout(), removed{args[0]})
		},
	}
	c.addFlags(cmd)
	return cmd
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
