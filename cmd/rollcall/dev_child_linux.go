package main

import "syscall"

// childAttributes give a process a group of its own, so that Ctrl-C at the terminal reaches dev alone, which
// then stops the nodes. The signal at the parent's death, without effect on a process that runs, lets one go
// on that is stopped. (It comes when the parent's thread ends, and Go ends none that no goroutine was locked to.)
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGCONT}
}
