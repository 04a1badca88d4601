package main

import (
	"errors"
	"fmt"
	"io"
)

// Exit codes of every command; docs/operations.md explains them.
const (
	exitOK    = 0
	exitError = 1 // what was asked for could not be done, or its outcome is unknown
	exitUsage = 2 // the command line or the configuration is wrong; nothing was tried
	exitFatal = 3 // a server stopped by itself, because going on could have lost or forked data
)

// usageError marks a mistake in the command line or the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// fatalError marks the end of a server that must not go on.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

// exitStatus is an exit code of its own, as of a command that was run.
type exitStatus struct {
	code int
	err  error // nil: there is nothing to say about it
}

// Error says why, or at least with which code.
func (e exitStatus) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitStatus) Unwrap() error { return e.err }

// exitCode reports err on w and returns the process's exit code.
func exitCode(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	status := exitStatus{code: exitError, err: err}
	errors.As(err, &status)
	if status.err == nil {
		return status.code
	}
	fmt.Fprintf(w, "rollcall: %v\n", err)
	if usage := (usageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	if fatal := (fatalError{}); errors.As(err, &fatal) {
		return exitFatal
	}
	return status.code
}
