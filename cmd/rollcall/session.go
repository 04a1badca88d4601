package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
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
		Long: "Creates a session, which ends when it is not renewed for --ttl. Its locks and keys then stay\n" +
			"unavailable until --lock-delay has passed.",
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
	cmd.Flags().DurationVar(&lockDelay, "lock-delay", client.DefaultLockDelay, "for how long its locks and keys stay unavailable when it ends by itself; at most 1m")
	cmd.Flags().StringVar(&behavior, "behavior", "release", "the fate of the keys that it holds: release or delete")
	return cmd
}

// checkSession wants times that a session can have.
func checkSession(ttl, lockDelay time.Duration) error {
	var errs []error
	if ttl <= 0 {
		errs = append(errs, fmt.Errorf("--ttl: %v is no time", ttl))
	}
	if lockDelay < 0 || lockDelay > time.Minute {
		errs = append(errs, fmt.Errorf("--lock-delay: %v is not between 0s and 1m", lockDelay))
	}
	return errors.Join(errs...)
}

// noneIfZero is a lock-delay for the client, where 0 means the default.
func noneIfZero(lockDelay time.Duration) time.Duration {
	if lockDelay == 0 {
		return -1
	}
	return lockDelay
}

// createdSession is the id alone, for scripts; in JSON all of it.
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
		return sessionDone{Done: "renewed", Session: cmp.Or(s.ID, args[0])}, err
	})
}

func newSessionDestroyCommand() *cobra.Command {
	var c connection
	return c.command(&cobra.Command{
		Use:     "destroy ID",
		Short:   "End a session; its locks and keys are free after its lock-delay",
		Example: "  rollcall session destroy 954b5e76-54d1-4c1f-9d0c-0c5b6f6a2d11",
	}, cobra.ExactArgs(1), func(ctx context.Context, cl *client.Client, args []string) (cli.Tabler, error) {
		return sessionDone{Done: "destroyed", Session: args[0]}, cl.DestroySession(ctx, args[0])
	})
}

// sessionDone says what became of a session.
type sessionDone struct {
	Done    string `json:"done"`
	Session string `json:"session"`
}

func (d sessionDone) Table() [][]string { return [][]string{{d.Done, d.Session}} }

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

// sessionList is sessions in the form of ls, an empty list rather than null.
type sessionList []client.Session

func (l sessionList) Table() [][]string {
	rows := [][]string{{"SESSION", "NAME", "AGE", "TTL", "ENDS IN", "HOLDS"}}
	for _, s := range l {
		rows = append(rows, []string{s.ID, s.Name, inSeconds(s.AgeMS), s.TTL, endsIn(s), held(s.Holds)})
	}
	return rows
}

// endsIn is how long a session lasts unless it is renewed.
func endsIn(s client.Session) string {
	if s.TTL == "" {
		return "never"
	}
	return inSeconds(s.EndsInMS)
}

func inSeconds(ms int64) string {
	return (time.Duration(ms) * time.Millisecond).Round(time.Second).String()
}

// held names what a session holds.
func held(all []client.Acquisition) string {
	var names []string
	for _, a := range all {
		names = append(names, a.Kind+" "+a.Name)
	}
	return strings.Join(names, ", ")
}

// guardHelp is what lock and semaphore have in common.
const guardHelp = `
The command has a process group of its own, gets the signals that rollcall gets, and finds its
holding in the environment: ROLLCALL_FENCE is the token that says to whoever it writes to that it
still holds (rollcall kv put --fence), ROLLCALL_SESSION is the session. If the holding is lost,
because the cluster could not be reached for --ttl or rollcall was paused for so long, the command
gets SIGTERM, and SIGKILL after --grace. On Linux it is killed if rollcall is.

Exit codes: the command's own (128+N if signal N ended it), or
  2    the command line is wrong
  123  the holding was lost, and the command was ended
  124  it was not acquired: somebody else has it (--try), or --timeout has passed
  125  the cluster could not be reached, or refused; the command was not run
  126  the command cannot be run
  127  there is no such command`

func newLockCommand() *cobra.Command {
	var g guard
	cmd := &cobra.Command{
		Use:   "lock NAME -- COMMAND [ARG ...]",
		Short: "Run a command while holding a lock (mode cp)",
		Long: "Waits for a lock, in the order in which waiters came, runs a command while holding it, and gives it\n" +
			"to the next. ROLLCALL_LOCK is its name.\n" + guardHelp,
		Example: "  rollcall lock demo -- sleep 5\n" +
			"  rollcall lock nightly --try -- ./backup.sh --full\n" +
			"  rollcall lock db --timeout 1m --ttl 30s -- sh -c 'echo my token is $ROLLCALL_FENCE'",
		Args: commandArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.run(cmd, args, "ROLLCALL_LOCK", func(ctx context.Context, cl *client.Client, o client.LockOptions) (*client.Held, error) {
				return cl.AcquireLock(ctx, o)
			})
		},
	}
	g.addFlags(cmd)
	return cmd
}

func newSemaphoreCommand() *cobra.Command {
	var g guard
	var limit int
	cmd := &cobra.Command{
		Use:   "semaphore NAME --limit N -- COMMAND [ARG ...]",
		Short: "Run a command while holding one of N permits (mode cp)",
		Long: "Waits for one of the --limit permits of a semaphore, in the order in which waiters came, runs a\n" +
			"command while holding it, and gives it to the next. The first to acquire fixes the limit until the\n" +
			"semaphore is neither held nor waited for. ROLLCALL_SEMAPHORE is its name.\n" + guardHelp,
		Example: "  rollcall semaphore reports --limit 3 -- ./report.sh\n" +
			"  rollcall semaphore reports --limit 3 --try -- ./report.sh",
		Args: commandArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return cli.Usage(errors.New("--limit: is required: how many may hold a permit at a time, at least 1"))
			}
			return g.run(cmd, args, "ROLLCALL_SEMAPHORE", func(ctx context.Context, cl *client.Client, o client.LockOptions) (*client.Held, error) {
				return cl.AcquireSemaphore(ctx, client.SemaphoreOptions{LockOptions: o, Limit: limit})
			})
		},
	}
	g.addFlags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 0, "how many may hold a permit at a time (required)")
	return cmd
}
