package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
)

func newConfigCommand() *cobra.Command {
	return cli.Group("config", "Look at a server's configuration, and begin one",
		newConfigInitCommand(), newConfigValidateCommand(), newConfigSchemaCommand(), newConfigShowCommand())
}

func newConfigInitCommand() *cobra.Command {
	var forProduction, withTLS bool
	var sets []string
	cmd := &cobra.Command{
		Use:   "init [FILE | --tls DIR NAME=ADDRESS...]",
		Short: "Write a file with every setting, explained, or a folder for each node of a cluster with TLS",
		Long: "Writes a file with every setting: what it means, its bounds, and its default as a comment.\n" +
			"FILE must not be there; without one, or with -, the text goes to standard output. Those that --set\n" +
			"names have its values and are no comments.\n\n" +
			"With --tls it writes into DIR a folder for each named node, to be copied to its machine: its file of settings,\n" +
			"its certificate and key, and the authority's certificate. ADDRESS is an IP address or DNS name, or several with\n" +
			"commas between them, the first of which the other nodes use. The authority is made the first time; later nodes\n" +
			"are added by it. Nothing is overwritten.",
		Example: "  rollcall config init rollcall.yaml\n  rollcall config init --production /etc/rollcall.yaml\n" +
			"  rollcall config init --set data.dir=/var/lib/rollcall --set http.addr=127.0.0.1:9761 rollcall.yaml\n" +
			"  rollcall config init --tls cluster n1=10.0.0.1 n2=10.0.0.2 n3=10.0.0.3",
		Args: cli.Args(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := config.ParseChosen(sets)
			switch {
			case err != nil:
				return cli.Usage(fmt.Errorf("--set: %w", err))
			case withTLS && len(sets) > 0:
				return cli.Usage(errors.New("--set: is for one FILE; change the files of the folders that --tls writes"))
			case withTLS:
				return initNodes(cmd.OutOrStdout(), args, forProduction)
			case len(args) > 1:
				return cli.Usage(errors.New("give one FILE at most; a folder for each of several nodes needs --tls"))
			case len(args) == 0 || args[0] == "-":
				_, err := io.WriteString(cmd.OutOrStdout(), config.Template(forProduction, chosen))
				return err
			}
			return initFile(args[0], config.Template(forProduction, chosen))
		},
	}
	cmd.Flags().BoolVar(&forProduction, "production", false, "set what one of three nodes with TLS needs, to be changed to your names")
	cmd.Flags().StringArrayVar(&sets, "set", nil, "value of a setting, as key=value; may be repeated")
	cmd.Flags().BoolVar(&withTLS, "tls", false, "write an authority, and for each node a folder with certificate, key and settings")
	return cmd
}

// initFile writes a new file of settings.
func initFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s already exists and is not overwritten: give another name", path)
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Sync(), f.Close())
}

// initNodes writes a folder for each node, named after it, below the first argument, and prints what to do with them.
func initNodes(w io.Writer, args []string, forProduction bool) error {
	if len(args) == 0 || strings.Contains(args[0], "=") {
		return cli.Usage(errors.New("give the folder to write into, and then NAME=ADDRESS for each node: --tls cluster n1=10.0.0.1"))
	}
	dir := args[0]
	nodes, err := config.ParseNodes(args[1:])
	if err != nil {
		return cli.Usage(err)
	}
	if err := config.WriteNodes(dir, nodes, forProduction); err != nil {
		return err
	}
	for _, n := range nodes {
		fmt.Fprintf(w, "%s: copy this folder to %s, and run there: rollcall server --config %s\n", filepath.Join(dir, n.Name), n.Hosts[0], filepath.Join(n.Name, config.NodeFile))
	}
	_, err = fmt.Fprintf(w, "%s: programs that call the nodes must trust it (--ca); its key, %s, belongs on none of the machines\n",
		filepath.Join(dir, config.AuthorityFile), filepath.Join(dir, config.AuthorityKey))
	return err
}

func newConfigValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "validate FILE",
		Short:   "Check a settings file on its own, and name each mistake with its key",
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
				cl, err := c.client(nil)
				if err != nil {
					return err
				}
				if s.Cluster, err = cl.Settings(cmd.Context()); err != nil {
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
