package localcluster

import (
	"fmt"
	"syscall"
)

// childAttributes give a process a group of its own, so that Ctrl-C at the terminal reaches only the parent, which
// then stops the processes. The signal at the parent's death has no effect on a running process, and resumes a
// stopped one. (It comes when the parent's thread ends, and Go ends only threads that a goroutine was locked to.)
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGCONT}
}

// foreignAttributes give a process a group of its own, and end it with its parent, even if it is stopped.
func foreignAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// AwaitStopped returns when every thread of a child that was sent SIGSTOP has stopped: until then some still respond.
func AwaitStopped(pid int) error {
	const byPID, stopped, leaveIt = 1, 2, 0x1000000 // waitid(2): P_PID, WSTOPPED, WNOWAIT
	for {
		_, _, err := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), 0, stopped|leaveIt, 0, 0)
		switch err {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return fmt.Errorf("wait until process %d has stopped: %w", pid, err)
		}
	}
}
