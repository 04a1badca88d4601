// Package cli is what the command lines of Rollcall's programs have in common: how commands are grouped, what
// they exit with, and in which forms they print what they found.
package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
)

// Where commands that talk to a cluster find it.
const (
	AddrEnv     = "ROLLCALL_ADDR" // in the environment
	DefaultAddr = "http://127.0.0.1:8761"
)

// Group is a command that only holds other commands; alone it shows its help.
func Group(name, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  Args(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.AddCommand(commands...)
	return group
}

// Root is a program's group of commands. The caller reports their errors by ExitCode.
func Root(name, short string, commands ...*cobra.Command) *cobra.Command {
	root := Group(name, short, commands...)
	root.SilenceUsage = true  // an error is one line, not one line under forty of usage
	root.SilenceErrors = true // main prints it
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })
	return root
}

// Args makes a mistake in the arguments a usage error.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return Usage(err)
		}
		return nil
	}
}

// OneOf is an error if the value of a flag is none of the words that are possible.
func OneOf(flag, value string, words []string) error {
	if slices.Contains(words, value) {
		return nil
	}
	return fmt.Errorf("%s: %q is none of %q", flag, value, words)
}
