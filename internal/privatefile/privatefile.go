// Package privatefile reads files that hold secrets or what guards them, which the owner may write and the group may read.
package privatefile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
)

// Widest is the widest mode of such a file: owner writes, group reads.
const Widest fs.FileMode = 0o640

// Check refuses a file with a mode wider than Widest.
func Check(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return check(path, info)
}

func check(path string, info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&^Widest != 0 && runtime.GOOS != "windows" { // where modes say nothing of who reads a file
		return fmt.Errorf("%s has mode %#o, wider than %#o; chmod it", path, mode, Widest)
	}
	return nil
}

// Read reads a file of at most limit bytes. It refuses one with a mode wider than Widest. Errors name the file, and nothing
// of what is in it.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := check(path, info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return text, err
}
