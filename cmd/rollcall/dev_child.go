package main

import (
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

// stopWithin is how long a node may take to stop by itself before it is killed.
const stopWithin = 10 * time.Second

// devChild is a node's process. It lives until its standard input ends, so that it cannot outlive
// dev even if dev is killed; a stopped one goes on then, to see it.
type devChild struct {
	devNode
	cmd   *exec.Cmd
	stdin io.Closer
	log   string        // file with what the process printed
	done  chan struct{} // closed when the process has ended
	err   error         // of the process; valid once done is closed
}

// start runs the node's process. The caller must stop it.
func (n devNode) start(binary string, args []string) (*devChild, error) {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return nil, fmt.Errorf("%s: %w", n.name(), err)
	}
	c := &devChild{devNode: n, log: filepath.Join(n.dir, "log"), done: make(chan struct{})}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.name(), err)
	}
	defer log.Close() // the process has its own copy
	c.cmd = exec.Command(binary, args...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.Env = append(os.Environ(), parentPipeEnv+"=1")
	c.cmd.SysProcAttr = childAttributes()
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("%s: %w", n.name(), err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", n.name(), err)
	}
	go c.wait()
	return c, nil
}

func (c *devChild) wait() {
	c.err = c.cmd.Wait()
	close(c.done)
}

// ended says whether the process has ended.
func (c *devChild) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// signal sends a signal to the process, which must not have ended.
func (c *devChild) signal(sig syscall.Signal) error {
	if c.ended() {
		return errors.New(c.obituary())
	}
	if err := c.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %v to %s: %w", sig, c.name(), err)
	}
	return nil
}

// stop asks the process to end, by closing its standard input, and kills it if it does not.
func (c *devChild) stop() {
	c.stdin.Close()
	timer := time.NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		c.cmd.Process.Kill()
		<-c.done
	}
}

// obituary says how a process ended and what it said last. It may be called once done is closed.
func (c *devChild) obituary() string {
	return fmt.Sprintf("node=%d dc=%s pid=%d ended: %v; the end of %s:\n%s", c.number, c.datacenter(), c.cmd.Process.Pid, c.cmd.ProcessState, c.log, lastLines(c.log, 5))
}

// lastLines returns the last n lines of a file, indented, as far as they lie in its last 8 KiB.
func lastLines(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return "  " + err.Error()
	}
	defer f.Close()
	const window = 8 << 10
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
