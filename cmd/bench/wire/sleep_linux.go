package wire

import (
	"syscall"
	"time"
)

// SleepUntil blocks the thread, to within some 50 µs.
func SleepUntil(t time.Time) {
	for {
		left := time.Until(t)
		if left <= 0 {
			return
		}
		// An interrupted sleep is taken up by the next turn.
		request := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&request, nil)
	}
}
