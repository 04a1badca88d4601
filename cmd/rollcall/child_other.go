//go:build !linux

package main

import "syscall"

// childAttributes give a command a process group of its own, so that signals reach its children, too.
// Only Linux ends it together with this process if that is killed.
func childAttributes(group bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: group} }
