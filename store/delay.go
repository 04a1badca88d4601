package store

import (
	"sync/atomic"
	"time"
)

// syncDelay makes durable writes take longer, as a slow disk does. It is for tests and benchmarks, and can
// change at any time.
type syncDelay struct{ nanos atomic.Int64 }

func (d *syncDelay) set(by time.Duration) { d.nanos.Store(int64(by)) }

// pass takes the time that one durable write is to take longer.
func (d *syncDelay) pass() {
	if by := d.nanos.Load(); by > 0 {
		time.Sleep(time.Duration(by))
	}
}

// SetSyncDelay makes each durable write to the log take so much longer from now on; 0: no longer.
func (s *Raft) SetSyncDelay(by time.Duration) { s.disk.delay.set(by) }

// SetSyncDelay makes each write to the disk take so much longer from now on; 0: no longer.
func (s *Local) SetSyncDelay(by time.Duration) { s.disk.delay.set(by) }
