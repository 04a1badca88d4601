package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// StopWithin is the time that a process has to stop before it is killed.
const StopWithin = 10 * time.Second

// Process is a child process. A program of Rollcall ends when this process does, and so does a foreign one on Linux.
type Process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	log   string        // file with the output of this process and earlier ones
	done  chan struct{} // closed when the process has ended
	err   error         // of the process; valid once done is closed
}

// Start starts a program, which appends its output to the file log. env is added to the environment of this process.
// The caller stops the process.
func Start(log string, env []string, program string, args ...string) (*Process, error) {
	return start(childAttributes(), log, env, program, args)
}

// StartForeign starts a program that knows nothing of Rollcall, and ignores the end of its standard input. The caller
// kills the process. If this process ends without having done so, Linux does it.
func StartForeign(log string, env []string, program string, args ...string) (*Process, error) {
	return start(foreignAttributes(), log, env, program, args)
}

func start(attributes *syscall.SysProcAttr, log string, env []string, program string, args []string) (*Process, error) {
	if err := os.MkdirAll(filepath.Dir(log), 0o700); err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has a descriptor of its own
	p := &Process{log: log, cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(append(os.Environ(), parentPipeEnv+"=1"), env...)
	p.cmd.SysProcAttr = attributes
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// State waits for the end of the process and returns how it ended.
func (p *Process) State() *os.ProcessState {
	<-p.done
	return p.cmd.ProcessState
}

// Err waits for the end of the process. It returns nil after exit code 0, and otherwise the process's obituary.
func (p *Process) Err() error {
	<-p.done
	if p.err == nil {
		return nil
	}
	return errors.New(p.Obituary())
}

// Signal sends a signal to the process, which must not have ended.
func (p *Process) Signal(sig syscall.Signal) error {
	if p.Ended() {
		return errors.New(p.Obituary())
	}
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %v to process %d: %w", sig, p.Pid(), err)
	}
	return nil
}

// Kill ends the process as kill -9 does, even if it is paused, and waits until it has ended.
func (p *Process) Kill() {
	p.cmd.Process.Kill() // an error means that it has ended already
	<-p.done
	p.stdin.Close()
}

// Stop makes the process end by closing its standard input, and kills it after StopWithin.
func (p *Process) Stop() {
	p.stdin.Close()
	timer := time.NewTimer(StopWithin)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.Kill()
	}
}

// Obituary waits for the end of the process, and says how it ended and what it printed last.
func (p *Process) Obituary() string {
	return fmt.Sprintf("ended: %v; %s", p.State(), p.LastWords(5))
}

// LogFile returns the file with the output of this process and earlier ones.
func (p *Process) LogFile() string { return p.log }

// LastWords returns the last lines of the process's log.
func (p *Process) LastWords(lines int) string {
	return fmt.Sprintf("the end of %s:\n%s", p.log, LastLines(p.log, lines))
}

// LastLines returns the last n lines of a file, indented, but only from its last 64 KiB.
func LastLines(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return "  " + err.Error()
	}
	defer f.Close()
	const window = 64 << 10
	if info, err := f.Stat(); err == nil && info.Size() > window {
		if _, err := f.Seek(-window, io.SeekEnd); err != nil {
			return "  " + err.Error()
		}
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return "  " + err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-n):], "\n  ")
}

// parentPipeEnv, set to 1, makes a program of Rollcall end when its standard input does. The parent holds the other
// end of that pipe, so it cannot leave such a process behind, however the parent ends.
const parentPipeEnv = "ROLLCALL_PARENT_PIPE"

// UntilParentEnds returns a context that ends with ctx and, in a process that Start started, with the parent.
func UntilParentEnds(ctx context.Context, env func(string) (string, bool), stdin io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if v, _ := env(parentPipeEnv); v != "1" {
		return ctx, cancel
	}
	go func() {
		// Its end is not awaited: a read of standard input cannot be interrupted.
		defer cancel()
		io.Copy(io.Discard, stdin)
	}()
	return ctx, cancel
}
