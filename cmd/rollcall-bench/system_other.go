//go:build !linux

package main

import "os"

// runningUsage is nothing where there is no portable way to ask.
func runningUsage(int) processUsage { return processUsage{} }

// endedUsage is nothing, so that the two agree.
func endedUsage(*os.ProcessState) processUsage { return processUsage{} }

// syncDisk does nothing where there is no portable way.
func syncDisk() {}
