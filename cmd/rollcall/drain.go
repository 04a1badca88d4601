package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func newDrainCommand() *cobra.Command {
	var c connection
	var o operator
	var settle, timeout time.Duration
	cmd := &cobra.Command{
		Use:   "drain APP/ID",
		Short: "Take an instance out of service, and return when it may be stopped",
		Long: "Overrides an instance's status with OUT_OF_SERVICE, waits until every node of the cluster has\n" +
			"applied that, and then for the time that polling clients need to fetch it. Afterwards nobody\n" +
			"calls the instance any more. The override stays until it is deleted.",
		Example: "  rollcall drain ORDERS/orders-1\n" +
			"  rollcall drain ORDERS/orders-1 --settle 60s --reason \"kernel update\"",
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDrain(settle, timeout); err != nil {
				return cli.Usage(err)
			}
			key, cl, err := c.about(args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout+settle)
			defer cancel()
			if err := cl.Drain(ctx, key, settle, o.act()); err != nil {
				return err
			}
			return c.out.Print(cmd.OutOrStdout(), done{Done: "drained", App: key.App, ID: key.ID, Status: registry.OutOfService.String()})
		},
	}
	c.addFlags(cmd)
	o.addFlags(cmd)
	cmd.Flags().DurationVar(&settle, "settle", 30*time.Second, "time for polling clients, after every node has applied it")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "longest time to wait for the nodes, before --settle begins")
	return cmd
}

func checkDrain(settle, timeout time.Duration) error {
	if settle < 0 {
		return fmt.Errorf("--settle: %v is negative", settle)
	}
	if timeout <= 0 {
		return fmt.Errorf("--timeout: %v leaves no time for the nodes", timeout)
	}
	return nil
}
