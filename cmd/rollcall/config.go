package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
)

func newConfigCommand() *cobra.Command {
	return cli.Group("config", "Look at a server's configuration", newConfigShowCommand())
}

func newConfigShowCommand() *cobra.Command {
	var c connection
	var effective bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the settings as YAML, each with its source (flag, env, file or default)",
		Long: "Prints the settings as YAML, each with its source: flag, env, file or default. With --effective\n" +
			"and --addr, those that decide how leases end are compared with the cluster's.",
		Example: "  rollcall config show --config rollcall.yaml\n" +
			"  rollcall config show --effective --config rollcall.yaml\n" +
			"  rollcall config show --effective --config rollcall.yaml --addr http://127.0.0.1:8761",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.addr != "" && !effective {
				return cli.Usage(errors.New("--addr: give --effective too: the cluster's settings are compared with all of them"))
			}
			s, err := config.Load(config.FromProcess(cmd.Flags()))
			if err != nil {
				return cli.Usage(err)
			}
			if c.addr != "" {
				if s.Cluster, err = c.settings(cmd.Context()); err != nil {
					return err
				}
			}
			return s.Write(cmd.OutOrStdout(), effective)
		},
	}
	cmd.Flags().BoolVar(&effective, "effective", false, "print defaults too")
	c.addServerFlags(cmd.Flags())
	config.AddFlags(cmd.Flags())
	return cmd
}

// settings fetches the settings that the nodes of the cluster share.
func (c *connection) settings(ctx context.Context) (client.Settings, error) {
	cl, err := c.client(nil)
	if err != nil {
		return nil, err
	}
	return cl.Settings(ctx)
}
