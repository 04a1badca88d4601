//go:build !linux

package wire

import "time"

// SleepUntil is as exact as the runtime's timers: within a millisecond or so.
func SleepUntil(t time.Time) { time.Sleep(time.Until(t)) }
