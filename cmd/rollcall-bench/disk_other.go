//go:build !linux

package main

// settleDisk does nothing where there is no portable way.
func settleDisk() {}
