//go:build !linux

package integration

import (
	"os"
	"syscall"
)

// stopSelf stops this process, and returns when it goes on.
func stopSelf() error { return syscall.Kill(os.Getpid(), syscall.SIGSTOP) }
