package main

import "syscall"

// settleDisk writes out what earlier loads left in the page cache, so that the next measurement does
// not pay for it.
func settleDisk() { syscall.Sync() }
