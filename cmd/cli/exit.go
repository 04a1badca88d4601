package cli

import (
	"errors"
	"fmt"
	"io"
)

// Exit codes of every command; docs/operations.md explains them.
const (
	ExitOK    = 0
	ExitError = 1 // what was asked for could not be done, or its outcome is unknown
	ExitUsage = 2 // the command line or the configuration is wrong; nothing was tried
	ExitFatal = 3 // a server stopped by itself, because going on could have lost or forked data
)

// usageError marks a mistake in the command line or the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks a mistake in the command line or the configuration.
func Usage(err error) error { return usageError{err} }

// Fatal marks the end of a server that must not go on.
func Fatal(err error) error { return fatalError{err} }

// fatalError marks the end of a server that must not go on.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

// ExitStatus is an exit code of its own, as of a command that was run.
type ExitStatus struct {
	Code int
	Err  error // nil: there is nothing to say about it
}

// Error says why, or at least with which code.
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
	if status.Err == nil {
		return status.Code
	}
	fmt.Fprintf(w, "%s: %v\n", program, err)
	if usage := (usageError{}); errors.As(err, &usage) {
		return ExitUsage
	}
	if fatal := (fatalError{}); errors.As(err, &fatal) {
		return ExitFatal
	}
	return status.Code
}
