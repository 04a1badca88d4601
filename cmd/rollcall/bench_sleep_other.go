//go:build !linux

package main

import "time"

// sleepUntil is as exact as the runtime's timers: within a millisecond or so.
func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }
