package main

import (
	"errors"
	"os"
	"syscall"
)

// childAttributes do nothing: Windows has no process groups that end together.
func childAttributes(bool) *syscall.SysProcAttr { return nil }

// signal ends the command. Ctrl-C reaches it through its console, and Windows has no other signals.
func (c *child) signal(s syscall.Signal) {
	if s == syscall.SIGINT {
		return
	}
	if err := c.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.log.Warn("command not ended", "err", err)
	}
}

// forwardedSignals are the signals at which rollcall keeps waiting for the command.
func forwardedSignals(bool) []os.Signal { return []os.Signal{syscall.SIGINT, syscall.SIGTERM} }
