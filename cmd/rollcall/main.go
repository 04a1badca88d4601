// Command rollcall is the registry's one binary: the server, a local cluster for development, and
// the operator's commands. It is the only place that wires the packages together; docs/cli.md shows
// every command and docs/operations.md every setting.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	err := newRootCommand().ExecuteContext(ctx)
	last := newLogQueue(os.Stderr) // which may block, but not the end of the process
	code := cli.ExitCode(last, "rollcall", err)
	last.flush(logFlushLimit)
	os.Exit(code)
}

func newRootCommand() *cobra.Command {
	return cli.Root("rollcall", "A service registry that speaks Eureka's protocol and agrees by Raft",
		newServerCommand(),
		newDevCommand(),
		newStatusCommand(),
		newLsCommand(),
		newRegisterCommand(),
		newCancelCommand(),
		newOverrideCommand(),
		newQuarantineCommand(),
		newDrainCommand(),
		newWatchCommand(),
		newExplainCommand(),
		newEventsCommand(),
		newSelfPreservationCommand(),
		newMembersCommand(),
		newPeersCommand(),
		newPruneCommand(),
		newKVCommand(),
		newSessionCommand(),
		newLockCommand(),
		newSemaphoreCommand(),
		newConfigCommand(),
		newBenchCommand(),
		newVersionCommand(),
	)
}
