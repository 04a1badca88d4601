package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
)

// newBenchCommand says where the benchmarks are, which were commands of this program.
func newBenchCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "bench",
		Short:              "Says where the benchmarks are: rollcall-bench",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return cli.Usage(errors.New("the benchmarks are a program of their own: rollcall-bench, which make build puts beside this one"))
		},
	}
}
