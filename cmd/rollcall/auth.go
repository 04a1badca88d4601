package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/httpd"
)

func newAuthCommand() *cobra.Command {
	return cli.Group("auth", "Look at access control, begin it, and say what becomes of calls that their callers may not make",
		newAuthStatusCommand(), newAuthBootstrapCommand(), newAuthModeCommand(), newAuthTestCommand(), newAuthCheckCommand(), newAuthHash())
}

// authConnection is a connection to a cluster or, through the socket in a node's data directory, to that node, where
// everything is allowed.
type authConnection struct {
	connection
	dataDir string
}

// command is connection.command with --data-dir.
func (c *authConnection) command(cmd *cobra.Command, args cobra.PositionalArgs, ask func(context.Context, *client.Client, []string) (cli.Tabler, error)) *cobra.Command {
	cmd = c.connection.command(cmd, args, ask)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := c.resolve(); err != nil {
			return cli.Usage(err)
		}
		return run(cmd, args)
	}
	c.addDataDir(cmd)
	return cmd
}

func (c *authConnection) addDataDir(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.dataDir, "data-dir", "", "data directory of a node of this machine: call that node by the socket there, which needs no token")
}

// resolve turns --data-dir into an address.
func (c *authConnection) resolve() error {
	if c.dataDir == "" {
		return nil
	}
	if c.addr != "" {
		return errors.New("give --addr or --data-dir, and not both")
	}
	c.addr = "unix:" + filepath.Join(c.dataDir, httpd.AdminSocket)
	return nil
}

// change has the flags of changes of access control.
type change struct {
	operator
	force bool
}

// addFlags returns the command, with the flags.
func (c *change) addFlags(cmd *cobra.Command) *cobra.Command {
	c.operator.addFlags(cmd)
	cmd.Flags().BoolVar(&c.force, "force", false, "even if no token without an end remains that may change roles and tokens (the sockets in the data directories remain); of a rotation even if it ends an older secret at once")
	return cmd
}

func (c *change) with() client.AuthChange { return client.AuthChange{By: c.act(), Force: c.force} }

func newAuthStatusCommand() *cobra.Command {
	var c authConnection
	return c.command(&cobra.Command{
		Use:   "status",
		Short: "Show the mode in force, how many roles and tokens there are, and who you are to the server",
		Long: "Shows access control as one node sees it: the mode in force, which is the stricter of the node's own\n" +
			"(auth.mode) and the cluster's (rollcall auth mode), the roles and tokens that it knows and how old that\n" +
			"is, and who asked.",
		Example: "  rollcall auth status\n  rollcall auth status --token-file ops.token -o json",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		s, err := cl.AuthStatus(ctx)
		return authStatus{s}, err
	})
}

// authStatus shows access control as two tables: what is in force, and who asked.
type authStatus struct{ client.AuthStatus }

func (s authStatus) Table() [][]string {
	file := ""
	if s.FileRevision != 0 {
		file = strconv.FormatUint(s.FileRevision, 10) + " " + s.FileDigest
	}
	age := time.Duration(s.Age * float64(time.Second)).Round(time.Millisecond).String()
	if s.Age > 365*24*3600 {
		age = "unknown" // it has heard no leader yet
	}
	table := [][]string{
		{"MODE", "NODE'S", "CLUSTER'S", "BOOTSTRAPPED", "ROLES", "TOKENS", "REVISION", "AGE", "FILE"},
		{s.Mode, s.NodeMode, s.ClusterMode, cli.YesNo(s.Bootstrapped), strconv.Itoa(s.Roles), strconv.Itoa(s.Tokens), unlessZero(s.Revision), age, file},
		{},
		{"YOU", "ACCESSOR", "BY"},
		{s.Caller.Name, s.Caller.Accessor, s.Caller.Via},
	}
	if s.FileError != "" {
		table = append(table, nil, []string{"THE FILE IS NOT IN FORCE AS IT IS NOW"}, []string{s.FileError})
	}
	return table
}

func newAuthModeCommand() *cobra.Command {
	var c authConnection
	var with change
	return with.addFlags(c.command(&cobra.Command{
		Use:   "mode off|log-only|on",
		Short: "Say what becomes of calls in the whole cluster that their callers may not make",
		Long: "Sets the cluster's mode. off: no caller is asked for anything. log-only: what would be denied is counted\n" +
			"(rollcall_auth_would_deny_total) and audited, and is done all the same. on: it is denied. A node whose own\n" +
			"settings are stricter stays with those.",
		Example: "  rollcall auth mode log-only --token-file ops.token\n" +
			"  rollcall auth mode on --token-file ops.token --reason \"nothing was counted for a week\"\n" +
			"  rollcall auth mode off --data-dir /var/lib/rollcall",
	}, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		if err := cli.OneOf("MODE", args[0], []string{"off", "log-only", "on"}); err != nil {
			return nil, cli.Usage(err)
		}
		s, err := cl.SetAuthMode(ctx, args[0], with.with())
		return authStatus{s}, err
	}))
}

func newAuthTestCommand() *cobra.Command {
	var c authConnection
	return c.command(&cobra.Command{
		Use:   "test ACCESSOR NEED",
		Short: "Say whether a token may do something",
		Long: "Says whether the token with an accessor may do something, in the words of a rule with one verb. The exit\n" +
			"code says the same: 0 it may, 1 it may not.",
		Example: "  rollcall auth test k5b7q2mdn3xw4r6c \"app ORDERS register\"\n" +
			"  rollcall auth test k5b7q2mdn3xw4r6c kv config/orders/limit write",
	}, cobra.MinimumNArgs(2), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		d, err := cl.TestPolicy(ctx, args[0], strings.Join(args[1:], " "))
		if err == nil && !d.Allowed {
			err = cli.ExitStatus{Code: cli.ExitError}
		}
		return decision{d}, err
	})
}

// decision reports whether something is allowed.
type decision struct{ client.Decision }

func (d decision) Table() [][]string {
	word := "denied"
	if d.Allowed {
		word = "allowed"
	}
	return [][]string{{word, d.Need}}
}

func newAuthCheckCommand() *cobra.Command {
	var c authConnection
	return c.command(&cobra.Command{
		Use:   "check",
		Short: "List what is registered and would be refused by the roles as they are",
		Long: "Lists the VIPs that are not the name of their application, with the roles that register it and may not\n" +
			"register the VIP, and the checks at addresses, or with headers, that their tokens do not allow; each with the\n" +
			"rule that is wanted. VIPs are only counted so far, and such checks below level 3 of the formats. Checks that\n" +
			"name a host are judged where it is resolved: see rollcall_probe_would_refuse_total, and the leader's log. The\n" +
			"exit code is 0 if nothing is listed, and else 1.",
		Example: "  rollcall auth check\n  rollcall auth check --data-dir /var/lib/rollcall -o json",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		found, err := cl.CheckAuth(ctx)
		if err == nil && len(found.VIPs)+len(found.Checks) > 0 {
			err = cli.ExitStatus{Code: cli.ExitError}
		}
		return authCheck{found}, err
	})
}

// authCheck shows what would be refused, as two tables.
type authCheck struct{ client.AuthCheck }

func (a authCheck) Table() [][]string {
	table := [][]string{{"APP", "VIP", "ROLES", "TOKENS", "WANTS"}}
	for _, v := range a.VIPs {
		table = append(table, []string{v.App, v.VIP, strings.Join(v.Roles, ","), strings.Join(v.Tokens, ","), v.Rule})
	}
	table = append(table, nil, []string{"NODE", "CHECK", "SERVICE", "FROM", "TOKEN", "WANTS"})
	for _, k := range a.Checks {
		table = append(table, []string{k.Node, k.Check, k.Service, k.From, cmp.Or(k.Token, k.Accessor), k.Rule})
	}
	if a.More > 0 {
		table = append(table, nil, []string{strconv.Itoa(a.More) + " more are left out"})
	}
	return table
}

// dataDirEnv is the server's setting data.dir in the environment.
const dataDirEnv = "ROLLCALL_DATA_DIR"

func newAuthBootstrapCommand() *cobra.Command {
	var s secretCommand
	var request client.TokenRequest
	var by operator
	cmd := s.command(&cobra.Command{
		Use:   "bootstrap",
		Short: "Make the first operator's token, once for each cluster",
		Long: "Makes a token that may do everything, with the role operator, and prints it: it is shown this once. It\n" +
			"works once for each cluster, by the socket in a node's data directory, as the user who owns that. When the\n" +
			"last operator's token is lost, make another one by the same socket:\n" +
			"rollcall token create --name NAME --role operator --data-dir DIR.",
		Example: "  rollcall auth bootstrap --data-dir /var/lib/rollcall --out ops.token\n" +
			"  rollcall auth bootstrap --addr unix:/var/lib/rollcall/admin.sock --out ops.token",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (client.NewToken, error) {
		return cl.Bootstrap(ctx, request, by.act())
	})
	by.addFlags(cmd)
	s.needsAddress = true
	cmd.Flags().StringVar(&request.Name, "name", "", "name of the token's holder, as the audit shows it (default: operator)")
	cmd.Flags().StringVar(&request.Expires, "expires", "", "when the token ends, such as 720h (default: never)")
	return cmd
}

// secretCommand has the flags of commands that print a secret.
type secretCommand struct {
	authConnection
	file         string // to write the secret into; "" for standard output
	needsAddress bool   // the default address is useless
}

// command completes a command that makes a secret. Standard output gets nothing but the secret (or, as JSON, what was
// made), so that it can be redirected.
func (s *secretCommand) command(cmd *cobra.Command, args cobra.PositionalArgs, ask func(context.Context, *client.Client, []string) (client.NewToken, error)) *cobra.Command {
	cmd.Args = cli.Args(args)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if s.needsAddress && cmp.Or(s.addr, s.dataDir, os.Getenv(cli.AddrEnv)) == "" {
			if s.dataDir = os.Getenv(dataDirEnv); s.dataDir == "" {
				return cli.Usage(errors.New("give --data-dir, the data directory of a node of this machine"))
			}
		}
		if err := s.resolve(); err != nil {
			return cli.Usage(err)
		}
		cl, err := s.open(nil)
		if err != nil {
			return err
		}
		out, err := openSecret(s.file, cmd.OutOrStdout())
		if err != nil {
			return err
		}
		made, err := ask(cmd.Context(), cl, args)
		if err != nil {
			return errors.Join(err, out.discard())
		}
		return s.print(cmd, out, made)
	}
	s.addFlags(cmd)
	s.addDataDir(cmd)
	cmd.Flags().StringVar(&s.file, "out", "", "write the secret into this new file, of mode 0600, instead of to standard output")
	return cmd
}

// print writes the secret to its destination, and what was made beside it.
func (s *secretCommand) print(cmd *cobra.Command, out *secretOut, made client.NewToken) error {
	about := made.Token
	if s.out == cli.JSON {
		if out.path != "" {
			return errors.Join(out.write(made.Secret+"\n"), cli.PrintJSON(cmd.OutOrStdout(), about))
		}
		return cli.PrintJSON(out.w, made)
	}
	if err := out.write(made.Secret + "\n"); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "token %s of %s (roles: %s; ends: %s); this is the only time that its secret is shown\n",
		about.Accessor, cli.Printable(about.Name), cli.Printable(strings.Join(about.Roles, ", ")), cmp.Or(clockTime(about.Expires), "never"))
	return nil
}

// secretOut is where a secret is written: a new file, or standard output.
type secretOut struct {
	w    io.Writer
	path string // "" for standard output
}

// openSecret creates a file (none if path is "") before there is a secret, which would be lost if that failed.
func openSecret(path string, stdout io.Writer) (*secretOut, error) {
	if path == "" {
		return &secretOut{w: stdout}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s already exists and is not overwritten: give another name", path)
	}
	return &secretOut{f, path}, err
}

func (o *secretOut) write(text string) error {
	_, err := io.WriteString(o.w, text)
	return errors.Join(err, o.close())
}

func (o *secretOut) close() error {
	if f, is := o.w.(*os.File); is && o.path != "" {
		return errors.Join(f.Sync(), f.Close()) // nobody is shown the secret again
	}
	return nil
}

// discard removes the file again.
func (o *secretOut) discard() error {
	if o.path == "" {
		return nil
	}
	return errors.Join(o.close(), os.Remove(o.path))
}
