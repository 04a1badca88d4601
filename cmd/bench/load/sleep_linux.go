package load

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
		// The next turn continues an interrupted sleep.
		request := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&request, nil)
	}
}
