package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func newPruneCommand() *cobra.Command {
	var c connection
	var o client.PruneOptions
	var notPassing bool
	cmd := c.command(&cobra.Command{
		Use:   "prune --not-passing",
		Short: "Remove the instances that are not passing",
		Long: "Removes the instances that are not passing, of one service or of all, and prints them: dead ones that\n" +
			"nobody cancelled. It works through any node, and what it removes stays away until it registers again.\n" +
			"Instances in quarantine stay. Look with --dry-run first.",
		Example: "  rollcall prune --not-passing --dry-run\n" +
			"  rollcall prune --not-passing --service orders",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		if !notPassing {
			return nil, cli.Usage(errors.New("--not-passing: is required: it says which instances are removed"))
		}
		found, err := cl.Prune(ctx, o)
		return append(prunedList{}, found...), err
	})
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
