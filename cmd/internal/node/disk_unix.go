//go:build linux || darwin

package node

import "syscall"

// freeBytes returns what the disk of a directory has left for this process.
func freeBytes(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// sizeBytes returns the size of a directory's disk, without the administrator's reserve, or 0 if not known.
func sizeBytes(dir string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0
	}
	return int64(s.Blocks-s.Bfree+s.Bavail) * int64(s.Bsize)
}
