// Command rollcall-bench measures clusters of Rollcall from outside: it puts load on one that runs (run), measures
// clusters of this machine against named baselines (ratios), and compares the modes under the same load and the
// same faults (compare). docs/benchmarks.md and docs/comparison.md explain what comes of it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
)

// version is set by the linker (Makefile).
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(cli.ExitCode(os.Stderr, "rollcall-bench", newRootCommand().ExecuteContext(ctx)))
}

func newRootCommand() *cobra.Command {
	return cli.Root("rollcall-bench", "Measures clusters of Rollcall",
		newBenchRunCommand(), newBenchCompareCommand(), newBenchRatiosCommand(), newBenchBareCommand(), newBenchRaftCommand())
}
