package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func newPruneCommand() *cobra.Command {
	var c connection
	var o client.PruneOptions
	var notPassing bool
	cmd := &cobra.Command{
		Use:   "prune --not-passing",
		Short: "Remove the instances that are not passing",
		Long: "Removes the instances that are not passing, of one service or of all, and prints them: dead ones that\n" +
			"nobody cancelled. It works through any node, and what it removes stays away until it registers again.\n" +
			"Instances in quarantine stay. Look with --dry-run first.",
		Example: "  rollcall prune --not-passing --dry-run\n" +
			"  rollcall prune --not-passing --service orders",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !notPassing {
				return cli.Usage(errors.New("--not-passing: is required: it says which instances are removed"))
			}
			cl, err := c.open(nil)
			if err != nil {
				return err
			}
			found, err := cl.Prune(cmd.Context(), o)
			if err != nil {
				return err
			}
			return c.out.Print(cmd.OutOrStdout(), append(prunedList{}, found...))
		},
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&notPassing, "not-passing", false, "those whose status is not UP, which a check that does not pass keeps them from (required)")
	cmd.Flags().StringVar(&o.Service, "service", "", "of this service only (default: of all)")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "remove nothing, show what would be removed")
	return cmd
}

// prunedList is the instances that were removed, an empty list rather than null.
type prunedList []client.Pruned

func (l prunedList) Table() [][]string {
	rows := [][]string{{"APP", "ID", "STATUS", "REASON"}}
	for _, p := range l {
		rows = append(rows, []string{p.App, p.ID, p.Status, p.Reason})
	}
	return rows
}
