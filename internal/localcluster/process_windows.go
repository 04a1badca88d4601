package localcluster

import (
	"errors"
	"syscall"
)

// childAttributes give a process a group of its own, so that Ctrl-C at the console reaches the parent alone.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// foreignAttributes are the same: there is no portable way to end a process with its parent.
func foreignAttributes() *syscall.SysProcAttr { return childAttributes() }

// Pause is an error: Windows freezes no processes by a signal.
func (p *Process) Pause() error { return errors.ErrUnsupported }

// Resume is an error, as Pause is.
func (p *Process) Resume() error { return errors.ErrUnsupported }
