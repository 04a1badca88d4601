//go:build unix && !linux

package main

import "syscall"

// childAttributes give a command a process group of its own, so that signals reach its children, too. Only on Linux
// is it killed together with this process.
func childAttributes(group bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: group} }
