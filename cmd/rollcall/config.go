package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
)

func newConfigCommand() *cobra.Command {
	return cli.Group("config", "Look at a server's configuration, and begin one",
		newConfigInitCommand(), newConfigValidateCommand(), newConfigSchemaCommand(), newConfigShowCommand())
}

func newConfigInitCommand() *cobra.Command {
	var forProduction bool
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a file with every setting, explained",
		Long: "Writes a file with every setting: what it means, its bounds, and its default as a comment.\n" +
			"FILE must not be there; without one, or with -, the text goes to standard output.",
		Example: "  rollcall config init rollcall.yaml\n  rollcall config init --production /etc/rollcall.yaml",
		Args:    cli.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := config.Template(forProduction)
			if len(args) == 0 || args[0] == "-" {
				_, err := io.WriteString(cmd.OutOrStdout(), text)
				return err
			}
			f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s is there already; it is not overwritten: give another name", args[0])
			}
			if err != nil {
				return err
			}
			_, err = io.WriteString(f, text)
			return errors.Join(err, f.Close())
		},
	}
	cmd.Flags().BoolVar(&forProduction, "production", false, "set what one of three nodes with TLS needs, to be changed to your names")
	return cmd
}

func newConfigValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "validate FILE",
		Short:   "Check a file of settings by itself, and name each mistake with its key",
		Example: "  rollcall config validate /etc/rollcall.yaml",
		Args:    cli.Args(cobra.ExactArgs(1)),
		RunE:    func(_ *cobra.Command, args []string) error { return config.ValidateFile(args[0]) },
	}
}

func newConfigSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print a JSON schema of the file, for editors",
		Example: "  rollcall config schema > rollcall.schema.json",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			encoder := json.NewEncoder(cmd.OutOrStdout())
			encoder.SetIndent("", "  ")
			return encoder.Encode(config.Schema())
		},
	}
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
