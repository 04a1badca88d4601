//go:build unix

package localcluster

import "syscall"

// Pause freezes the process and returns when every thread has stopped; its sockets stay open.
func (p *Process) Pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return AwaitStopped(p.Pid())
}

// Resume wakes a paused process.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }
