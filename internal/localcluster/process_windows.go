package localcluster

import (
	"errors"
	"syscall"
)

// childAttributes give a process a group of its own, so that Ctrl-C at the console reaches only the parent.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// foreignAttributes are the same, as a process cannot portably be ended with its parent.
func foreignAttributes() *syscall.SysProcAttr { return childAttributes() }

// Pause returns an error: Windows freezes no processes with a signal.
func (p *Process) Pause() error { return errors.ErrUnsupported }

// Resume returns an error, like Pause.
func (p *Process) Resume() error { return errors.ErrUnsupported }
