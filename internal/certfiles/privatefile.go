package certfiles

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
)

// Widest is the widest mode of such a file: owner writes, group reads.
const Widest fs.FileMode = 0o640

// CheckPrivate refuses a file with a mode wider than Widest.
func CheckPrivate(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return checkPrivate(path, info)
}

func checkPrivate(path string, info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&^Widest != 0 && runtime.GOOS != "windows" { // where modes say nothing of who reads a file
		return fmt.Errorf("%s has mode %#o, wider than %#o; chmod it", path, mode, Widest)
	}
	return nil
}

// ReadPrivate reads a file of at most limit bytes. It refuses one with a mode wider than Widest. Errors name the file,
// and nothing of what is in it.
func ReadPrivate(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := checkPrivate(path, info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return text, err
}
