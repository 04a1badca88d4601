//go:build !linux

package load

import "time"

// SleepUntil is as exact as the runtime's timers: within about a millisecond.
func SleepUntil(t time.Time) { time.Sleep(time.Until(t)) }
