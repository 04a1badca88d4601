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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	err := newRootCommand().ExecuteContext(ctx)
	last := newLogQueue(os.Stderr) // which may block, but not the end of the process
	code := exitCode(last, err)
	last.flush(logFlushLimit)
	os.Exit(code)
}

func newRootCommand() *cobra.Command {
	root := groupCommand("rollcall", "A service registry that speaks Eureka's protocol and agrees by Raft",
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
	root.SilenceUsage = true  // an error is one line, not one line under forty of usage
	root.SilenceErrors = true // main prints it
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	return root
}

// groupCommand only holds other commands; alone it shows its help.
func groupCommand(name, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  usageArgs(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.AddCommand(commands...)
	return group
}

// usageArgs makes a mistake in the arguments a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
