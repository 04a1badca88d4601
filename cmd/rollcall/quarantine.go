package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func newQuarantineCommand() *cobra.Command {
	var c connection
	var o operator
	var d time.Duration
	var end bool
	cmd := &cobra.Command{
		Use:   "quarantine APP/ID --for DURATION | quarantine APP/ID --end",
		Short: "Hide an instance from every list for a time, or list it again",
		Long: "Hides an instance from every list for a time, while its heartbeats are accepted: nobody calls it,\n" +
			"and it does not notice. An instance that registers again meanwhile is hidden again.",
		Example: "  rollcall quarantine ORDERS/orders-1 --for 10m --reason \"heap dump\"\n" +
			"  rollcall quarantine ORDERS/orders-1 --end",
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkQuarantine(d, end); err != nil {
				return cli.Usage(err)
			}
			key, cl, err := c.about(args[0])
			if err != nil {
				return err
			}
			result := done{Done: "quarantined", App: key.App, ID: key.ID}
			if end {
				result.Done = "quarantine ended"
				_, err = cl.EndQuarantine(cmd.Context(), key, o.act())
			} else {
				_, err = cl.Quarantine(cmd.Context(), key, o.act(), d)
			}
			if err != nil {
				return err
			}
			return c.out.Print(cmd.OutOrStdout(), result)
		},
	}
	c.addFlags(cmd)
	o.addFlags(cmd)
	cmd.Flags().DurationVar(&d, "for", 0, "how long, from 1s to 168h")
	cmd.Flags().BoolVar(&end, "end", false, "list the instance again")
	return cmd
}

func checkQuarantine(d time.Duration, end bool) error {
	if !end {
		return checkFor(d)
	}
	if d != 0 {
		return errors.New("give --for or --end, and not both")
	}
	return nil
}
