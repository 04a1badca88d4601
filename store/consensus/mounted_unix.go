//go:build unix

package consensus

import (
	"os"
	"path/filepath"
	"syscall"
)

// isMounted reports whether a directory is on a different file system than its parent. A mount of the same file
// system is noticed when it cannot be renamed.
func isMounted(dir string) bool {
	own, err := os.Stat(dir)
	parent, parentErr := os.Stat(filepath.Dir(dir))
	if err != nil || parentErr != nil {
		return false
	}
	a, ok := own.Sys().(*syscall.Stat_t)
	b, alike := parent.Sys().(*syscall.Stat_t)
	return ok && alike && a.Dev != b.Dev
}
