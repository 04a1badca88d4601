package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newOverrideCommand() *cobra.Command {
	var c connection
	var remove bool
	cmd := &cobra.Command{
		Use:   "override APP/ID STATUS | override APP/ID --delete",
		Short: "Force an instance's status, whatever it says of itself, or end that",
		Example: "  rollcall override ORDERS/orders-1 OUT_OF_SERVICE\n" +
			"  rollcall override ORDERS/orders-1 --delete",
		Args: usageArgs(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if remove != (len(args) == 1) {
				return usageError{errors.New("give a status, or --delete, and not both")}
			}
			result, err := c.override(cmd, args)
			if err != nil {
				return err
			}
			return c.out.print(cmd.OutOrStdout(), result)
		},
	}
	c.addFlags(cmd)
	cmd.Flags().BoolVar(&remove, "delete", false, "end the override; the instance is UNKNOWN until its next heartbeat")
	return cmd
}

// override sets the status that the second argument names, or ends an override if there is none.
func (c *connection) override(cmd *cobra.Command, args []string) (done, error) {
	key, err := parseKey(args[0])
	if err != nil {
		return done{}, usageError{err}
	}
	cl, err := c.open(nil)
	if err != nil {
		return done{}, err
	}
	result := done{Done: "override deleted", App: key.App, ID: key.ID}
	if len(args) == 1 {
		return result, cl.DeleteStatus(cmd.Context(), key)
	}
	status, err := parseStatus("STATUS", args[1])
	if err != nil {
		return done{}, usageError{err}
	}
	result.Done, result.Status = "overridden", status.String()
	return result, cl.SetStatus(cmd.Context(), key, status)
}
