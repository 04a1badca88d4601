package main

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
)

func newSessionCommand() *cobra.Command {
	return cli.Group("session", "Create, renew, list and end sessions, which hold keys, locks and permits (mode cp)",
		newSessionCreateCommand(),
		newSessionRenewCommand(),
		newSessionLsCommand(),
		newSessionDestroyCommand(),
	)
}

func newSessionCreateCommand() *cobra.Command {
	var c connection
	var o client.SessionOptions
	var behavior string
	var lockDelay time.Duration
	cmd := c.command(&cobra.Command{
		Use:   "create",
		Short: "Create a session and print its id",
		Long: "Creates a session, which ends when it is not renewed for --ttl. Its locks and keys stay unavailable\n" +
			"then until --lock-delay has passed.",
		Example: "  rollcall session create\n" +
			"  rollcall session create --name nightly --ttl 30s --lock-delay 5s --behavior delete",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		if err := errors.Join(cli.OneOf("--behavior", behavior, []string{"release", "delete"}), checkSession(o.TTL, lockDelay)); err != nil {
			return nil, cli.Usage(err)
		}
		o.DeleteKeys, o.LockDelay = behavior == "delete", noneIfZero(lockDelay)
		s, err := cl.CreateSession(ctx, o)
		return createdSession{s}, err
	})
	cmd.Flags().StringVar(&o.Name, "name", "", "a name, for people")
	cmd.Flags().DurationVar(&o.TTL, "ttl", client.DefaultSessionTTL, "how long it lasts without a renewal")
	cmd.Flags().DurationVar(&lockDelay, "lock-delay", client.DefaultLockDelay, "for how long its locks and keys stay unavailable when it expires; at most 1m")
	cmd.Flags().StringVar(&behavior, "behavior", "release", "what happens to the keys that it holds when it ends: release or delete")
	return cmd
}

// createdSession prints only the id, for scripts; in JSON everything.
type createdSession struct{ client.Session }

func (s createdSession) Table() [][]string { return [][]string{{s.ID}} }

func newSessionRenewCommand() *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:     "renew ID",
		Short:   "Start a session's TTL anew",
		Example: "  rollcall session renew 954b5e76-54d1-4c1f-9d0c-0c5b6f6a2d11",
	}, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		s, err := cl.RenewSession(ctx, args[0])
		return done{Done: "renewed", Session: cmp.Or(s.ID, args[0])}, err
	})
}

func newSessionDestroyCommand() *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:     "destroy ID",
		Short:   "End a session; its locks and keys are free after its lock-delay",
		Example: "  rollcall session destroy 954b5e76-54d1-4c1f-9d0c-0c5b6f6a2d11",
	}, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		return done{Done: "destroyed", Session: args[0]}, cl.DestroySession(ctx, args[0])
	})
}

func newSessionLsCommand() *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:   "ls",
		Short: "List the sessions: how old they are, when they end and what they hold",
		Example: "  rollcall session ls\n" +
			"  rollcall session ls -o json",
	}, cobra.NoArgs, func(ctx context.Context, cl *client.Client, _ []string) (cli.Tabler, error) {
		found, err := cl.Sessions(ctx)
		return append(sessionList{}, found...), err
	})
}

// sessionList has sessions in the form of ls, an empty list rather than null.
type sessionList []client.Session

func (l sessionList) Table() [][]string {
	rows := [][]string{{"SESSION", "NAME", "AGE", "TTL", "ENDS IN", "HOLDS"}}
	for _, s := range l {
		var holds []string
		for _, a := range s.Holds {
			holds = append(holds, a.Kind+" "+a.Name)
		}
		endsIn := "never"
		if s.TTL != "" {
			endsIn = rounded(s.EndsInMS)
		}
		rows = append(rows, []string{s.ID, s.Name, rounded(s.AgeMS), s.TTL, endsIn, strings.Join(holds, ", ")})
	}
	return rows
}
