package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

func newRoleCommand() *cobra.Command {
	return cli.Group("role", "List, write and delete roles, which are rules under a name (mode cp)",
		newRoleLsCommand(), newRoleGetCommand(), newRolePutCommand(), newRoleDeleteCommand())
}

func newRoleLsCommand() *cobra.Command {
	var c authConnection
	return c.command(&cobra.Command{
		Use:     "ls",
		Short:   "List the roles and their rules",
		Example: "  rollcall role ls\n  rollcall role ls -o json",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		found, err := cl.Roles(ctx)
		return append(roleList{}, found...), err
	})
}

// roleList shows roles, a line for each rule.
type roleList []client.Role

func (l roleList) Table() [][]string {
	rows := [][]string{{"ROLE", "RULE"}}
	for _, r := range l {
		for _, rule := range r.Rules {
			rows = append(rows, []string{r.Name, rule})
		}
		if len(r.Rules) == 0 {
			rows = append(rows, []string{r.Name, ""})
		}
	}
	return rows
}

func newRoleGetCommand() *cobra.Command {
	var c authConnection
	return c.command(&cobra.Command{
		Use:     "get NAME",
		Short:   "Print the rules of a role, a line for each",
		Example: "  rollcall role get service",
	}, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		r, err := cl.Role(ctx, args[0])
		return rules{r}, err
	})
}

// rules has the rules of a role in the form that role put takes.
type rules struct{ client.Role }

func (r rules) Table() (rows [][]string) {
	for _, rule := range r.Rules {
		rows = append(rows, []string{rule})
	}
	return rows
}

func newRolePutCommand() *cobra.Command {
	var c authConnection
	var with change
	return with.addFlags(c.command(&cobra.Command{
		Use:   "put NAME RULE...",
		Short: "Make a role, or replace its rules",
		Long: "Makes a role, or replaces all rules of the one that is there; tokens that have it are judged by the new rules\n" +
			"at once. A rule is one argument: a resource, what of it, and verbs. {app} stands for the application of the\n" +
			"token (rollcall token create --app).\n\n" +
			"  app NAME|PREFIX* read,register,override    check-target CIDR:PORTS probe\n" +
			"  kv PREFIX read,write                       peer DATACENTER exchange,takeover\n" +
			"  lock PREFIX read,write                     session read,write\n" +
			"  node read,write                            operator read,write\n" +
			"  auth read,write                            metrics read",
		Example: "  rollcall role put service \"app {app} read,register\" \"app * read\" \"session write\"\n" +
			"  rollcall role put monitoring \"metrics read\"",
	}, cobra.MinimumNArgs(2), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		r, err := cl.PutRole(ctx, client.Role{Name: args[0], Rules: args[1:]}, with.with())
		return roleList{r}, err
	}))
}

func newRoleDeleteCommand() *cobra.Command {
	var c authConnection
	var with change
	return with.addFlags(c.command(&cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete a role: tokens that have it lose what it granted",
		Example: "  rollcall role delete reports --reason \"the reports are made elsewhere\"",
	}, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		return done{Done: "deleted", Role: args[0]}, cl.DeleteRole(ctx, args[0], with.with())
	}))
}

func newTokenCommand() *cobra.Command {
	return cli.Group("token", "List, create, rotate and revoke tokens, which identify programs and people (mode cp)",
		newTokenLsCommand(), newTokenCreateCommand(), newTokenRotateCommand(), newTokenRevokeCommand())
}

func newTokenLsCommand() *cobra.Command {
	var c authConnection
	return c.command(&cobra.Command{
		Use:     "ls",
		Short:   "List the tokens, without their secrets, which are not kept",
		Example: "  rollcall token ls\n  rollcall token ls -o json",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		found, err := cl.Tokens(ctx)
		return append(tokenList{}, found...), err
	})
}

// tokenList has tokens in the form of ls.
type tokenList []client.Token

func (l tokenList) Table() [][]string {
	return cli.Rows(l, []string{"ACCESSOR", "NAME", "ROLES", "APP", "SECRETS", "CREATED", "BY", "EXPIRES"}, func(t client.Token) []string {
		return []string{t.Accessor, t.Name, strings.Join(t.Roles, ","), t.App, strconv.Itoa(t.Secrets), clockTime(t.Created), t.By, clockTime(t.Expires)}
	})
}

func newTokenCreateCommand() *cobra.Command {
	var s secretCommand
	var request client.TokenRequest
	var by operator
	cmd := s.command(&cobra.Command{
		Use:   "create --name NAME",
		Short: "Create a token and print it; it is shown this once",
		Long: "Creates a token for a holder of a name, and prints it on standard output: the cluster keeps but a hash of\n" +
			"it. Everything else goes to standard error. The token is what a client sends as bearer token, as X-Consul-Token\n" +
			"or as the password of the URL, and what a file of --token-file holds.",
		Example: "  rollcall token create --name orders --role service --app ORDERS --out orders.token\n" +
			"  rollcall token create --name ci --role reader --expires 720h --out ci.token\n" +
			"  rollcall token create --name anna --role operator --data-dir /var/lib/rollcall",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (client.NewToken, error) {
		if request.Name == "" {
			return client.NewToken{}, cli.Usage(errors.New("--name: is required: whose token it is, as the audit shows it"))
		}
		return cl.CreateToken(ctx, request, by.act())
	})
	by.addFlags(cmd)
	cmd.Flags().StringVar(&request.Name, "name", "", "name of its holder, as the audit shows it (required)")
	cmd.Flags().StringSliceVar(&request.Roles, "role", nil, "roles that it has, which must be there; may be given several times")
	cmd.Flags().StringVar(&request.App, "app", "", "the application that {app} stands for in the rules of its roles")
	cmd.Flags().StringVar(&request.Expires, "expires", "", "when it ends, such as 720h (default: never)")
	return cmd
}

func newTokenRotateCommand() *cobra.Command {
	var s secretCommand
	var grace time.Duration
	var with change
	cmd := s.command(&cobra.Command{
		Use:   "rotate ACCESSOR",
		Short: "Give a token another secret and print it; it is shown this once",
		Long: "Gives a token another secret, and prints it as rollcall token create does. The secret that it had stays good\n" +
			"for --grace; give its holder the new one until then. Programs that read a file of --token-file, and\n" +
			"Go clients with TokenFile, need no restart when the file changes.",
		Example: "  rollcall token rotate k5b7q2mdn3xw4r6c --grace 1h --out orders.token.new && mv orders.token.new orders.token",
	}, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (client.NewToken, error) {
		if grace < 0 {
			return client.NewToken{}, cli.Usage(fmt.Errorf("--grace: %v is negative", grace))
		}
		return cl.RotateToken(ctx, args[0], grace, with.with())
	})
	with.addFlags(cmd)
	cmd.Flags().DurationVar(&grace, "grace", 0, "how long the secret that it had stays good; at most 2160h (default: it ends at once)")
	return cmd
}

func newTokenRevokeCommand() *cobra.Command {
	var c authConnection
	var with change
	return with.addFlags(c.command(&cobra.Command{
		Use:   "revoke ACCESSOR",
		Short: "End a token for good",
		Long: "Ends a token for good, whatever secrets it has: calls with it are refused within a second, and the watches and\n" +
			"blocking queries that it opened end.",
		Example: "  rollcall token revoke k5b7q2mdn3xw4r6c --reason \"the laptop is lost\"",
	}, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		return done{Done: "revoked", Accessor: args[0]}, cl.RevokeToken(ctx, args[0], with.with())
	}))
}

// tokenFileEnv is --token-file in the environment.
const tokenFileEnv = "ROLLCALL_TOKEN_FILE"

// checkTokenFile refuses a token file that is readable beyond its owner and group.
func checkTokenFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	if err := certfiles.CheckPrivate(path); err != nil {
		return fmt.Errorf("%w, and exchange the token (rollcall token rotate): others may have read it", err)
	}
	return nil
}

// warnOfSecret warns of a token or password in --addr, which other users of the machine can see.
func warnOfSecret(cmd *cobra.Command, _ []string) error {
	flag := cmd.Flags().Lookup("addr")
	if flag == nil || !slices.ContainsFunc(setting.SplitList(flag.Value.String()), func(s string) bool { return strings.Contains(s, "@") && !strings.HasPrefix(s, "unix:") }) {
		return nil
	}
	_, err := fmt.Fprintln(cmd.ErrOrStderr(), "rollcall: --addr holds a credential, which every user of this machine can see in the list of processes: use --token-file, or "+cli.AddrEnv)
	return err
}

// credential returns the file with the token that calls carry, or "".
func (c *connection) credential() (path string, err error) {
	path, from := c.tokenFile, "--token-file"
	if path == "" {
		path, from = os.Getenv(tokenFileEnv), tokenFileEnv
	}
	if path == "" {
		return "", nil
	}
	err = checkTokenFile(path)
	if err == nil {
		err = client.Config{Servers: []string{cli.DefaultAddr}, TokenFile: path}.Validate()
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", from, err)
	}
	return path, nil
}
