package main

import "syscall"

// syncDisk writes out what earlier loads left in the page cache, so that the next measurement does
// not pay for it.
func syncDisk() { syscall.Sync() }
