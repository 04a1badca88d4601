//go:build !linux

package main

import (
	"errors"
	"os"
	"time"
)

// machineUsage cannot be asked for, so that no trial counts as valid.
func machineUsage() (busy, own time.Duration, err error) {
	return 0, 0, errors.New("what a machine does can be read on Linux only")
}

// runningUsage is nothing where there is no portable way to ask.
func runningUsage(int) processUsage { return processUsage{} }

// endedUsage is nothing, so that the two agree.
func endedUsage(*os.ProcessState) processUsage { return processUsage{} }

// syncDisk does nothing where there is no portable way.
func syncDisk() {}

// lockFile does nothing where there is no portable way: no trial counts there, so that none can be lost.
func lockFile(*os.File) error { return nil }
