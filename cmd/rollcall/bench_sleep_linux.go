package main

import (
	"syscall"
	"time"
)

// sleepUntil blocks the thread, to within some 50 µs.
func sleepUntil(t time.Time) {
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
