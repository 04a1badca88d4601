package main

import "runtime/debug"

// setGC lets the heap grow further than Go would: a registry is much live data and little garbage
// per request, so that collections cost more than the memory between them.
func setGC(percent int) {
	if percent > 0 {
		debug.SetGCPercent(percent)
	}
}
