package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"
)

// SlowSync makes durable writes slow, as on a slow disk, or fail, as on a broken one. It is for tests and benchmarks.
type SlowSync struct {
	nanos atomic.Int64 // may change at any time
	// Around is called for each durable write, by name, and performs it, or fails in its place. May be nil.
	Around func(name string, write func() error) error
}

// Set slows each durable write by the given time from now on. 0 ends the delay.
func (d *SlowSync) Set(by time.Duration) { d.nanos.Store(int64(by)) }

// Do makes one durable write.
func (d *SlowSync) Do(name string, write func() error) error {
	if by := d.nanos.Load(); by > 0 {
		time.Sleep(time.Duration(by))
	}
	if d.Around != nil {
		return d.Around(name, write)
	}
	return write()
}

// MakeDir creates a directory and those above it, durably.
func MakeDir(dir string) error {
	var made []string
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, at)
	}
	err := os.MkdirAll(dir, 0o700)
	for _, at := range made {
		// whoever may write it need not be able to read it
		if sync := SyncDir(filepath.Dir(at)); !errors.Is(sync, fs.ErrPermission) {
			err = errors.Join(err, sync)
		}
	}
	return err
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if runtime.GOOS == "windows" { // Windows cannot sync directories
		return d.Close()
	}
	return errors.Join(d.Sync(), d.Close())
}
