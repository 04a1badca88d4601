package backup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/seed-20419f34/rollcall/store/disk"
)

// SaveFile has save write a file, syncs it, reads it back, and only then gives it its name: after a crash, a full
// disk or any other error, a file that already had the name is intact. It returns the header and the length in bytes.
func SaveFile(path string, save func(io.Writer) error) (Header, int64, error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return Header{}, 0, fmt.Errorf("save a snapshot: %w", err)
	}
	h, size, err := fill(f, save)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return Header{}, 0, fmt.Errorf("save a snapshot to %s, which is as it was before: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return h, size, disk.SyncDir(filepath.Dir(path))
}

// fill writes a file and reads it back.
func fill(f *os.File, save func(io.Writer) error) (Header, int64, error) {
	if err := save(f); err != nil {
		return Header{}, 0, err
	}
	if err := f.Sync(); err != nil {
		return Header{}, 0, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return Header{}, 0, err
	}
	h, _, err := Verify(f)
	if err != nil {
		return Header{}, 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	return h, size, err
}
