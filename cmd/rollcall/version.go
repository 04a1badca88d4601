package main

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
)

// version is set by the linker (Makefile).
var version = "unknown"

func newVersionCommand() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the program's version",
		Example: "  rollcall version -o json",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.Validate(); err != nil {
				return cli.Usage(err)
			}
			return out.Print(cmd.OutOrStdout(), build{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
		},
	}
	out.AddFlag(cmd)
	return cmd
}

// build is what is known about the program.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (b build) Table() [][]string { return [][]string{{"rollcall", b.Version, b.Go, b.Platform}} }
