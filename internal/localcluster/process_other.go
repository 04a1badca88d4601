//go:build unix && !linux

package localcluster

import "syscall"

// childAttributes give a process a group of its own, so that Ctrl-C at the terminal reaches only the parent, which
// then stops the processes. When the parent has ended, the group is orphaned, and POSIX resumes its stopped
// processes.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// foreignAttributes give a process a group of its own. It cannot portably be ended with its parent.
func foreignAttributes() *syscall.SysProcAttr { return childAttributes() }

// AwaitStopped does nothing, for lack of a portable way: the child stops within a moment.
func AwaitStopped(int) error { return nil }
