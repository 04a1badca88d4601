//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"
)

// signal signals the process group of the command, or the command alone if it lacks a group, and wakes stopped
// processes, so that they can act. They may have ended meanwhile. The stop signal is not passed on.
func (c *child) signal(s syscall.Signal) {
	if s == syscall.SIGTSTP {
		return
	}
	target := c.process.Pid
	if c.group {
		target = -target
	}
	for _, each := range []syscall.Signal{s, syscall.SIGCONT} {
		if err := syscall.Kill(target, each); err != nil && !errors.Is(err, syscall.ESRCH) {
			c.log.Warn("signal not sent", "signal", each.String(), "err", err)
		}
	}
}

// forwardedSignals are the signals that are passed on to the command. A command that shares the terminal gets the
// terminal's signals from there, and stops and resumes together with rollcall.
func forwardedSignals(foreground bool) []os.Signal {
	if foreground {
		return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
	}
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP}
}
