// Command rollcall-bench measures clusters of Rollcall from outside: it puts load on one that runs (run), measures
// clusters of this machine against named baselines (ratios), and compares registries under the same load and the same
// faults (compare). docs/benchmarks.md and docs/comparison.md explain the results. The loads, scenarios and verdicts
// are packages under cmd/bench. Its files:
//
//	main.go            the commands
//	program.go         the server's program, and its settings
//	machine.go         a description of the machine, and what it does meanwhile
//	loadcommand.go     bench run: a load on a cluster that runs
//	comparecommand.go  bench compare: the columns under the same scenarios
//	comparelog.go      the trials of a comparison that goes on, on the disk
//	comparedcluster.go the clusters that it starts; system_linux.go what the system knows of their processes
//	eurekacluster.go   the clusters of stock Eureka servers
//	ratios.go          bench ratios: the plan, the rounds and the report; what every part measures with
//	                   (underOneLeader, measureBeside)
//	rows.go            the rows of its result, with their floors and goals
//	writes.go          renewals, registrations, fetches, and the cost of a large registry; single exchanges, which
//	                   other parts use too (timedExchange, exchangeUntilServed)
//	leases.go          evictions, and the way of changes to watchers (withConn, recordLatencies)
//	replication.go     two datacenters (nodeMetric)
//	coordination.go    keys, locks and sessions
//	idle.go            a cluster that has nothing to do, and lone writes to it
//	cluster.go         the clusters that ratios measures, and the baselines
//	peers.go           bench peers: Rollcall beside others, and the table of them
//	peersystems.go     the systems in it: how each is started, and its loads
//	fleet.go           what its loads send: instances, documents and keys
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
		newBenchRunCommand(), newBenchCompareCommand(), newBenchRatiosCommand(), newBenchPeersCommand(), newBenchBareCommand(), newBenchRaftCommand())
}
