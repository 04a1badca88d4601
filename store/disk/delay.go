package disk

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// SyncDelay makes durable writes take longer, as a slow disk does. It is for tests and benchmarks, and can
// change at any time.
type SyncDelay struct{ nanos atomic.Int64 }

func (d *SyncDelay) Set(by time.Duration) { d.nanos.Store(int64(by)) }

// Pass takes the time that one durable write is to take longer.
func (d *SyncDelay) Pass() {
	if by := d.nanos.Load(); by > 0 {
		time.Sleep(time.Duration(by))
	}
}

func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
