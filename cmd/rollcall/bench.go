package main

import "github.com/spf13/cobra"

func newBenchCommand() *cobra.Command {
	return groupCommand("bench", "Measure", newBenchRunCommand(), newBenchCompareCommand(), newBenchRatiosCommand(), newBenchBareCommand(), newBenchRaftCommand())
}
