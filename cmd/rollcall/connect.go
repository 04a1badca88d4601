package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// connection has the flags of every command that calls a cluster.
type connection struct {
	addr          string
	tokenFile     string
	ca, cert, key string
	consistency   string
	fresh         []string // values of consistency; nil for those that the client accepts
	out           cli.Output
}

// command completes a command that asks a cluster for something and prints it. After an error of ask nothing is
// printed.
func (c *connection) command(cmd *cobra.Command, args cobra.PositionalArgs, ask func(context.Context, *client.Client, []string) (cli.Tabler, error)) *cobra.Command {
	cmd.Args = cli.Args(args)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cl, err := c.open(nil)
		if err != nil {
			return err
		}
		found, err := ask(cmd.Context(), cl, args)
		status, _ := errors.AsType[cli.ExitStatus](err) // a result that the exit code also carries
		if err != nil && (status.Code == 0 || status.Err != nil) {
			return err
		}
		return errors.Join(c.out.Print(cmd.OutOrStdout(), found), err)
	}
	c.addFlags(cmd)
	return cmd
}

// instanceCommand completes a command about one instance, APP/ID.
func (c *connection) instanceCommand(cmd *cobra.Command, ask func(context.Context, *client.Client, registry.Key) (cli.Tabler, error)) *cobra.Command {
	return c.command(cmd, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		key, err := parseKey(args[0])
		if err != nil {
			return nil, cli.Usage(err)
		}
		return ask(ctx, cl, key)
	})
}

func (c *connection) addFlags(cmd *cobra.Command) {
	c.addServerFlags(cmd.Flags())
	c.out.AddFlag(cmd)
}

// addServerFlags adds the flags that name the servers and say how they are trusted.
func (c *connection) addServerFlags(f *pflag.FlagSet) {
	f.StringVar(&c.addr, "addr", "", "servers, separated by commas and tried in order (environment: "+cli.AddrEnv+"; default "+cli.DefaultAddr+"); unix:PATH is a socket")
	f.StringVar(&c.tokenFile, "token-file", "", "file with the token to send, of mode 0640 or stricter (environment: "+tokenFileEnv+")")
	f.StringVar(&c.ca, "ca", "", "PEM file with the authority of the servers' certificates, if the system does not know it")
	f.StringVar(&c.cert, "cert", "", "PEM file with this client's certificate, if the servers want one")
	f.StringVar(&c.key, "key", "", "PEM file with its key")
}

// open returns a client for the servers that flags, environment or default name.
func (c *connection) open(log *slog.Logger) (*client.Client, error) {
	if err := c.out.Validate(); err != nil {
		return nil, cli.Usage(err)
	}
	if c.fresh != nil {
		if err := cli.OneOf("--consistency", c.consistency, c.fresh); err != nil {
			return nil, cli.Usage(err)
		}
	}
	return c.client(log)
}

// client is open for commands that have no choice of output.
func (c *connection) client(log *slog.Logger) (*client.Client, error) {
	trust, err := c.tls()
	if err != nil {
		return nil, cli.Usage(err)
	}
	tokenFile, err := c.credential()
	if err != nil {
		return nil, cli.Usage(err)
	}
	cl, err := client.New(client.Config{
		Servers:     c.servers(os.Getenv(cli.AddrEnv)),
		TokenFile:   tokenFile,
		InOrder:     true,
		TLS:         trust,
		Consistency: c.consistency,
		Log:         log,
	})
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("--addr: %w", err))
	}
	return cl, nil
}

// servers completes addresses that are given without a scheme.
func (c *connection) servers(env string) []string {
	servers := setting.SplitList(cmp.Or(c.addr, env, cli.DefaultAddr))
	for i, s := range servers {
		if !strings.Contains(s, "://") && !strings.HasPrefix(s, "unix:") {
			servers[i] = "http://" + s
		}
	}
	return servers
}

// tls returns the trust in servers, and the certificate that they are shown.
func (c *connection) tls() (*tls.Config, error) {
	if (c.cert == "") != (c.key == "") {
		return nil, errors.New("--cert and --key belong together; give both or none")
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.ca != "" {
		pool, err := certfiles.ReadPool(c.ca)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		trust.RootCAs = pool
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		trust.Certificates = []tls.Certificate{pair}
	}
	return trust, nil
}
