//go:build linux || darwin

package capacity

import "syscall"

// freeBytes is what the disk of a directory has left for this process.
func freeBytes(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// sizeBytes is the size of a directory's disk, without what only the administrator may use; 0: it is not known.
func sizeBytes(dir string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0
	}
	return int64(s.Blocks-s.Bfree+s.Bavail) * int64(s.Bsize)
}
