//go:build !linux

package main

import (
	"errors"
	"os"
	"time"
)

// machineUsage is unavailable, so no trial counts as valid.
func machineUsage() (busy, own time.Duration, err error) {
	return 0, 0, errors.New("what a machine does can be read on Linux only")
}

// runningUsage returns nothing, for lack of a portable way to ask.
func runningUsage(int) processUsage { return processUsage{} }

// endedUsage returns nothing, so that the two agree.
func endedUsage(*os.ProcessState) processUsage { return processUsage{} }

// syncDisk does nothing, for lack of a portable way.
func syncDisk() {}

// lockFile does nothing, for lack of a portable way: no trial counts here, so none can be lost.
func lockFile(*os.File) error { return nil }
