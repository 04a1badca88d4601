package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func newEventsCommand() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:     "events",
		Short:   "Show the latest registrations and cancels (evictions are among them), newest first",
		Example: "  rollcall events",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.open(nil)
			if err != nil {
				return err
			}
			events, err := cl.Events(cmd.Context())
			if err != nil {
				return err
			}
			return c.out.Print(cmd.OutOrStdout(), recentEvents{events})
		},
	}
	c.addFlags(cmd)
	return cmd
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
