package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func newExplainCommand() *cobra.Command {
	var c connection
	return c.instanceCommand(&cobra.Command{
		Use:     "explain APP/ID",
		Short:   "Say why an instance is listed, or why it is not, and what happened to it",
		Example: "  rollcall explain ORDERS/orders-1",
	}, func(ctx context.Context, cl *client.Client, key registry.Key) (cli.Tabler, error) {
		e, err := cl.Explain(ctx, key)
		return explanation{e}, err
	})
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
