// Command rollcall-bench measures clusters of Rollcall from outside: it puts load on one that runs (run), measures
// clusters of this machine beside those of other systems (peers), and compares registries under the same load and the
// same faults (compare). docs/benchmarks.md and docs/comparison.md explain the results. The loads, scenarios and
// verdicts are packages under cmd/bench. Its files:
//
//	main.go            the commands
//	program.go         the server's program, and its settings
//	machine.go         a description of the machine, and what it does meanwhile
//	loadcommand.go     bench run: a load on a cluster that runs
//	comparecommand.go  bench compare: the columns under the same scenarios
//	comparelog.go      the trials of a comparison that goes on, on the disk
//	comparedcluster.go the clusters that it starts; system_linux.go what the system knows of their processes
//	eurekacluster.go   the clusters of stock Eureka servers
//	cluster.go         the clusters of Rollcall that peers measures, and the bare handler
//	peers.go           bench peers: Rollcall beside others
//	peersystems.go     the systems in it: how each is started, and its loads
//	peersreport.go     its table
//	fleet.go           what its loads send: instances, documents and keys
//
// The benchmarks of whole clusters (make bench) are among the tests of this package.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(cli.ExitCode(os.Stderr, "rollcall-bench", newRootCommand().ExecuteContext(ctx)))
}

func newRootCommand() *cobra.Command {
	return cli.Root("rollcall-bench", "Measures clusters of Rollcall",
		newBenchRunCommand(), newBenchCompareCommand(), newBenchPeersCommand(), newBenchBareCommand())
}
