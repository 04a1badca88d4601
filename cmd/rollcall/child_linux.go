package main

import "syscall"

// childAttributes kill a command together with this process, because it must not go on without what is held. (The
// signal comes when the parent's thread ends, and Go ends only threads that a goroutine was locked to.) A process
// group of its own lets signals reach its children, too.
func childAttributes(group bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGKILL}
}
