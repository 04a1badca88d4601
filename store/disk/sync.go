package disk

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

// SlowSync makes durable writes take longer, as a slow disk does. It is for tests and benchmarks, and can
// change at any time.
type SlowSync struct{ nanos atomic.Int64 }

// Set sets the time that each durable write takes longer from now on; 0: no longer.
func (d *SlowSync) Set(by time.Duration) { d.nanos.Store(int64(by)) }

// Pass takes the time that one durable write is to take longer.
func (d *SlowSync) Pass() {
	if by := d.nanos.Load(); by > 0 {
		time.Sleep(time.Duration(by))
	}
}

// SyncDir makes durable which files a directory has.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if runtime.GOOS == "windows" { // whose directories cannot be synced
		return d.Close()
	}
	return errors.Join(d.Sync(), d.Close())
}
