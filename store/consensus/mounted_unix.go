//go:build unix

package consensus

import (
	"os"
	"path/filepath"
	"syscall"
)

// isMounted says whether a directory lies on another file system than the directory that it is in. One of the same file
// system that is mounted again is found when it cannot be renamed.
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
