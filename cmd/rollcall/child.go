package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
)

// Exit codes of commands that run another command, which may use nearly any code itself: those of timeout(1) and
// env(1), and one more.
const (
	exitLost        = 123 // the lock was lost, and the command was ended
	exitNotAcquired = 124 // the lock was not acquired in time
	exitRollcall    = 125 // rollcall itself failed; the command was not run
	exitCannotRun   = 126 // the command was found, but cannot be run
	exitNoCommand   = 127 // command not found
	exitSignal      = 128 // plus the number of the signal that ended it
)

// cannotRun returns the exit status of a command that cannot be started.
func cannotRun(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return cli.ExitStatus{Code: exitNoCommand, Err: err}
	}
	return cli.ExitStatus{Code: exitCannotRun, Err: err}
}

// child is a command that runs while something is held.
type child struct {
	held    *client.Held
	grace   time.Duration // between SIGTERM and SIGKILL
	group   bool          // it has a process group of its own
	signals <-chan os.Signal
	log     *slog.Logger
	process *os.Process
}

// run starts the command and waits until it has ended, on its own or because what is held was lost. The error is its
// exit status, nil for 0.
func (c *child) run(path string, args []string, cmd *cobra.Command, env []string) error {
	command := exec.Command(path, args[1:]...)
	command.Args[0] = args[0]
	command.Env = env
	command.Stdin, command.Stdout, command.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	command.SysProcAttr = childAttributes(c.group)
	if !c.held.Valid() {
		return cli.ExitStatus{Code: exitLost, Err: c.held.Err()}
	}
	if err := command.Start(); err != nil {
		return cannotRun(err)
	}
	c.process = command.Process
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	return c.await(ended)
}

// await passes signals on until the command has ended, and ends it when what is held was lost.
func (c *child) await(ended <-chan error) error {
	lost := c.held.Context().Done()
	var overdue <-chan time.Time
	for {
		select {
		case err := <-ended:
			if c.held.Valid() {
				return statusOf(err)
			}
			if c.group { // it may have left processes behind there
				c.signal(syscall.SIGKILL)
			}
			return cli.ExitStatus{Code: exitLost, Err: fmt.Errorf("%w; the command was ended", c.held.Err())}
		case <-lost:
			lost, overdue = nil, time.After(c.grace)
			c.signal(syscall.SIGTERM)
		case <-overdue:
			c.signal(syscall.SIGKILL)
		case s := <-c.signals:
			c.signal(s.(syscall.Signal))
		}
	}
}

// statusOf returns the exit status of a command that ended on its own; nil for 0.
func statusOf(err error) error {
	var failed *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &failed):
		return cli.ExitStatus{Code: exitRollcall, Err: err}
	}
	if status, ok := failed.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return cli.ExitStatus{Code: exitSignal + int(status.Signal())}
	}
	return cli.ExitStatus{Code: failed.ExitCode()}
}
