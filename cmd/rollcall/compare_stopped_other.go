//go:build !linux

package main

// awaitStopped does nothing where there is no portable way: the child stops within a moment.
func awaitStopped(int) error { return nil }
