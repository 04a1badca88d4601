package main

import (
	"fmt"
	"syscall"
)

// awaitStopped returns when every thread of a child that was sent SIGSTOP has stopped: until then some go on
// answering.
func awaitStopped(pid int) error {
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
