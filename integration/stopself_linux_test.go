package integration

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// stopSelf stops this process, and returns when it goes on. The system calls are raw: the scheduler does
// not learn of them, and runs nothing else when they return.
func stopSelf() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, _, _ := syscall.RawSyscall(syscall.SYS_GETTID, 0, 0, 0)
	_, _, failed := syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), thread, uintptr(syscall.SIGSTOP))
	if failed != 0 {
		return failed
	}
	return nil
}

// awaitStopped returns when every thread of a child has stopped.
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
