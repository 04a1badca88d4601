//go:build !linux

package main

import "syscall"

// childAttributes give a process a group of its own, so that Ctrl-C at the terminal reaches dev alone, which
// then stops the nodes. When dev has ended, the group is orphaned, and POSIX lets one go on that is stopped.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
