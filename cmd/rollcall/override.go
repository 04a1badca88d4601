package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
)

// overrideOptions are the flags of override.
type overrideOptions struct {
	operator
	remove bool
	length time.Duration
}

func newOverrideCommand() *cobra.Command {
	var c connection
	var o overrideOptions
	cmd := &cobra.Command{
		Use:   "override APP/ID STATUS | override APP/ID --delete",
		Short: "Force an instance's status, whatever it says of itself, or end that",
		Example: "  rollcall override ORDERS/orders-1 OUT_OF_SERVICE\n" +
			"  rollcall override ORDERS/orders-1 OUT_OF_SERVICE --for 30m --reason \"kernel update\"\n" +
			"  rollcall override ORDERS/orders-1 --delete",
		Args: cli.Args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return cli.Usage(err)
			}
			result, err := c.override(cmd, args, o)
			if err != nil {
				return err
			}
			return c.out.Print(cmd.OutOrStdout(), result)
		},
	}
	c.addFlags(cmd)
	o.addFlags(cmd)
	cmd.Flags().BoolVar(&o.remove, "delete", false, "end the override; the instance is UNKNOWN until its next heartbeat")
	cmd.Flags().DurationVar(&o.length, "for", 0, "how long, from 1s to 168h; then the instance has the status that it reported last (default: until --delete)")
	return cmd
}

func (o *overrideOptions) check(args []string) error {
	if o.remove != (len(args) == 1) {
		return errors.New("give a status, or --delete, and not both")
	}
	if o.length == 0 {
		return nil
	}
	if o.remove {
		return fmt.Errorf("--for: %v is for an override, and --delete ends one", o.length)
	}
	return checkFor(o.length)
}

// override sets the status that the second argument names, or ends an override if there is none.
func (c *connection) override(cmd *cobra.Command, args []string, o overrideOptions) (done, error) {
	key, cl, err := c.about(args[0])
	if err != nil {
		return done{}, err
	}
	result := done{Done: "override deleted", App: key.App, ID: key.ID}
	if o.remove {
		_, err := cl.EndOverride(cmd.Context(), key, o.act())
		return result, err
	}
	status, err := parseStatus("STATUS", args[1])
	if err != nil {
		return done{}, cli.Usage(err)
	}
	result.Done, result.Status = "overridden", status.String()
	_, err = cl.Override(cmd.Context(), key, status, o.act(), o.length)
	return result, err
}
