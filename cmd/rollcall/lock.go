package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/cli"
)

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
			"command while holding it, and gives it to the next. Who comes first fixes the limit until nobody\n" +
			"holds or waits any more. ROLLCALL_SEMAPHORE is its name.\n" + guardHelp,
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
