package main

import (
	"runtime"

	"github.com/spf13/cobra"
)

// version is set by the linker (Makefile).
var version = "unknown"

func newVersionCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the program's version",
		Example: "  rollcall version -o json",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.validate(); err != nil {
				return usageError{err}
			}
			return out.print(cmd.OutOrStdout(), build{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
		},
	}
	out.addFlag(cmd)
	return cmd
}

// build is what is known about the program.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (b build) table() [][]string { return [][]string{{"rollcall", b.Version, b.Go, b.Platform}} }
