// Package cli is what the command lines of Rollcall's programs share: groups of commands, exit codes, and the forms
// of output. It has no command itself, and calls no cluster.
package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
)

// The servers that commands call unless --addr names others.
const (
	AddrEnv     = "ROLLCALL_ADDR" // in the environment
	DefaultAddr = "http://127.0.0.1:8761"
)

// Group returns a command that only holds other commands; alone it shows its help.
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

// Root returns a program's group of commands. The caller reports their errors with ExitCode.
func Root(name, short string, commands ...*cobra.Command) *cobra.Command {
	root := Group(name, short, commands...)
	root.SilenceUsage = true  // an error is one line, not one line under forty of usage
	root.SilenceErrors = true // main prints it
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })
	return root
}

// Args turns a mistake in the arguments into a usage error.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return Usage(err)
		}
		return nil
	}
}

// OneOf returns an error if the value of a flag is not one of the words.
func OneOf(flag, value string, words []string) error {
	if slices.Contains(words, value) {
		return nil
	}
	return fmt.Errorf("%s: %q is not one of %q", flag, value, words)
}

// Exit codes of every command; docs/run/node-died.md explains them.
const (
	ExitOK    = 0
	ExitError = 1 // the command failed, or its outcome is unknown
	ExitUsage = 2 // the command line or the configuration is wrong; nothing was tried
	ExitFatal = 3 // a server stopped because going on could have lost or forked data
)

// Usage marks a mistake in the command line or the configuration.
func Usage(err error) error { return ExitStatus{ExitUsage, err} }

// Fatal marks the end of a server that must not go on.
func Fatal(err error) error { return ExitStatus{ExitFatal, err} }

// ExitStatus is an error with an exit code of its own, such as that of a command that was run.
type ExitStatus struct {
	Code int
	Err  error // nil prints nothing
}

// Error returns Err's text, or the code.
func (e ExitStatus) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e ExitStatus) Unwrap() error { return e.Err }

// ExitCode reports a program's error on w and returns the process's exit code.
func ExitCode(w io.Writer, program string, err error) int {
	if err == nil {
		return ExitOK
	}
	status := ExitStatus{Code: ExitError, Err: err}
	errors.As(err, &status)
	if status.Err != nil {
		fmt.Fprintf(w, "%s: %v\n", program, err)
	}
	return status.Code
}
