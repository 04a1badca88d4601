package main

import (
	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func newCancelCommand() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:     "cancel APP/ID",
		Short:   "Remove an instance",
		Example: "  rollcall cancel ORDERS/orders-1",
		Args:    cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, cl, err := c.about(args[0])
			if err != nil {
				return err
			}
			if err := cl.Cancel(cmd.Context(), key); err != nil {
				return err
			}
			return c.out.Print(cmd.OutOrStdout(), done{Done: "canceled", App: key.App, ID: key.ID})
		},
	}
	c.addFlags(cmd)
	return cmd
}

// done says what became of one instance.
type done struct {
	Done   string `json:"done"`
	App    string `json:"app"`
	ID     string `json:"id"`
	Status string `json:"status,omitempty"`
}

func (d done) Table() [][]string {
	row := []string{d.Done, d.App + "/" + d.ID}
	if d.Status != "" {
		row = append(row, d.Status)
	}
	return [][]string{row}
}
