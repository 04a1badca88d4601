package main

import (
	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func newExplainCommand() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:     "explain APP/ID",
		Short:   "Say why an instance is listed, or why it is not, and what happened to it",
		Example: "  rollcall explain ORDERS/orders-1",
		Args:    cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, cl, err := c.about(args[0])
			if err != nil {
				return err
			}
			e, err := cl.Explain(cmd.Context(), key)
			if err != nil {
				return err
			}
			return c.out.Print(cmd.OutOrStdout(), explanation{e})
		},
	}
	c.addFlags(cmd)
	return cmd
}

// explanation is what is known of an instance as text: the summary, then the history.
type explanation struct{ client.Explanation }

func (e explanation) Table() [][]string {
	rows := [][]string{{e.Summary}, {}, {"TIME", "EVENT", "TIMES", "DETAILS", "BY", "REASON"}}
	for _, h := range e.History {
		rows = append(rows, []string{clockTime(h.At), h.What, count(h.Times), h.Text, h.Author, h.Reason})
	}
	return rows
}
