package main

import "syscall"

// childAttributes let a command die with this process, for it must not go on without what is held.
// (The signal comes when the parent's thread ends, and Go ends none that no goroutine was locked to.)
// A group of its own lets signals reach its children, too.
func childAttributes(group bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGKILL}
}
