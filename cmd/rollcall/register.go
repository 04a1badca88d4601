package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func newRegisterCommand() *cobra.Command {
	var c connection
	var o registerOptions
	cmd := &cobra.Command{
		Use:   "register APP",
		Short: "Register an instance, and with --heartbeat keep it alive until Ctrl-C",
		Example: "  rollcall register orders --port 8080 --heartbeat\n" +
			"  rollcall register orders --id orders-1 --host orders-1.example.com --ip 10.0.0.11 --meta zone=a --lease 30s --interval 10s",
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			instance, err := o.instance(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			log := slog.New(slog.DiscardHandler)
			if o.heartbeat {
				log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			}
			cl, err := c.open(log)
			if err != nil {
				return err
			}
			if o.heartbeat {
				return keepAlive(cmd.Context(), cl, instance, cmd.OutOrStdout())
			}
			if err := cl.Register(cmd.Context(), instance); err != nil {
				return err
			}
			key := instance.Key()
			return c.out.Print(cmd.OutOrStdout(), done{Done: "registered", App: key.App, ID: key.ID, Status: instance.Status.String()})
		},
	}
	c.addFlags(cmd)
	o.addFlags(cmd.Flags())
	return cmd
}

// farewell bounds the cancel at the end of --heartbeat, all servers together.
const farewell = 10 * time.Second

// keepAlive keeps the instance registered until ctx ends, which cancels it. A first registration that
// the cluster refuses as malformed or forbidden ends it at once.
func keepAlive(ctx context.Context, cl *client.Client, instance *registry.Instance, out io.Writer) error {
	r, err := cl.StartRegistration(client.RegistrationConfig{Instance: instance})
	if err != nil {
		return cli.Usage(err)
	}
	registered := r.Registered(ctx)
	if registered == nil {
		fmt.Fprintf(out, "registered %s\n", instance.Key())
		<-ctx.Done()
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := errors.Join(registered, r.Deregister(bounded)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "canceled %s\n", instance.Key())
	return err
}
