//go:build !linux

package main

// syncDisk does nothing where there is no portable way.
func syncDisk() {}
