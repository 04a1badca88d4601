//go:build !linux

package raftio

import "os"

// allocate gives a file its size.
func allocate(f *os.File, size int64) error { return f.Truncate(size) }

// syncData makes durable what was written to a file.
func syncData(f *os.File) error { return f.Sync() }
