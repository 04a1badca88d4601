package raftio

import (
	"errors"
	"os"
	"syscall"
)

// allocate gives a file its size and reserves the room, so that writes to it change nothing else about the file.
func allocate(f *os.File, size int64) error {
	err := retried(func() error { return syscall.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, syscall.EOPNOTSUPP) { // not every file system can
		return f.Truncate(size)
	}
	return err
}

// syncData makes durable what was written to a file.
func syncData(f *os.File) error {
	return retried(func() error { return syscall.Fdatasync(int(f.Fd())) })
}

// retried repeats a call that a signal has interrupted.
func retried(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
