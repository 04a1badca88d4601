//go:build unix && !linux

package localcluster

import "syscall"

// childAttributes give a process a group of its own, so that Ctrl-C at the terminal reaches the parent alone, which
// then stops the processes. When the parent has ended, the group is orphaned, and POSIX lets one go on that is stopped.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// foreignAttributes give a process a group of its own. There is no portable way to end it with its parent.
func foreignAttributes() *syscall.SysProcAttr { return childAttributes() }

// AwaitStopped does nothing where there is no portable way: the child stops within a moment.
func AwaitStopped(int) error { return nil }
