package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
)

// comparedNode is a node of a comparison: its processes, one after the other.
type comparedNode struct {
	devNode
	binary   string
	args     []string
	settings map[string]string // what its file says, by key

	mu      sync.Mutex    // guards the following
	child   *devChild     // the newest process; nil: none was started
	told    bool          // to end
	serves  bool          // it has been ready, and so listens to SIGHUP
	delay   time.Duration // of its disk; 0: what settings say
	knows   time.Duration // the delay that the process knows of
	past    processUsage  // of the processes before
	discard bool          // no process is to be started any more
}

func (n *comparedNode) file() string { return filepath.Join(n.dir, "rollcall.yaml") }

func (n *comparedNode) data() string { return filepath.Join(n.dir, "data") }

// start starts a process and waits until it may serve and, if asked for, knows a leader. once are arguments
// for this time only.
func (n *comparedNode) start(ctx context.Context, leader bool, once ...string) error {
	child, err := n.begin(once)
	if err != nil {
		return err
	}
	if err := child.awaitReady(ctx, leader); err != nil {
		return err
	}
	return n.ready(child)
}

func (n *comparedNode) begin(once []string) (*devChild, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.discard:
		return nil, fmt.Errorf("%s is not started: its cluster was closed", n.name())
	case n.child != nil && !n.child.ended():
		return nil, fmt.Errorf("%s is not started: it runs", n.name())
	case n.child != nil:
		n.past = n.past.plus(endedUsage(n.child.cmd.ProcessState))
	}
	if err := n.writeFile(); err != nil {
		return nil, err
	}
	child, err := n.devNode.start(n.binary, append(n.args[:len(n.args):len(n.args)], once...))
	if err != nil {
		return nil, err
	}
	n.child, n.told, n.serves, n.knows = child, false, false, n.delay
	return child, nil
}

// ready notes that a process may serve, and tells it what has changed meanwhile.
func (n *comparedNode) ready(child *devChild) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.child != child {
		return fmt.Errorf("%s was started again meanwhile", n.name())
	}
	n.serves = true
	return n.reload()
}

// slowDisk takes effect within milliseconds, or with the next start.
func (n *comparedNode) slowDisk(delay time.Duration) error {
	if delay < 0 || delay > maxSyncDelay {
		return fmt.Errorf("slow the disk of %s down by %v: 0 to %v are possible", n.name(), delay, maxSyncDelay)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = delay
	return n.reload()
}

// reload has the process read its file again, if it does not know what it says. Until it listens, SIGHUP
// would end it. The caller holds mu.
func (n *comparedNode) reload() error {
	if n.child == nil || n.child.ended() || !n.serves || n.knows == n.delay {
		return nil
	}
	if err := n.writeFile(); err != nil {
		return err
	}
	n.knows = n.delay
	return n.child.signal(syscall.SIGHUP)
}

// writeFile writes the configuration file. What is an argument, too, counts as it is there.
func (n *comparedNode) writeFile() error {
	keys := make(map[string]string)
	maps.Copy(keys, n.settings)
	if n.delay > 0 {
		keys["data.sync-delay"] = n.delay.String()
	}
	text, err := yaml.Marshal(keys)
	if err != nil {
		return fmt.Errorf("settings of %s: %w", n.name(), err)
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(n.file(), text, 0o600)
}

// kill ends the process by SIGKILL and waits for its end.
func (n *comparedNode) kill() error {
	child, err := n.tellToEnd(syscall.SIGKILL)
	if err != nil {
		return err
	}
	<-child.done
	return nil
}

// stop ends the process by SIGTERM and waits for its end, which must be a proper one.
func (n *comparedNode) stop(ctx context.Context) error {
	child, err := n.tellToEnd(syscall.SIGTERM)
	if err != nil {
		return err
	}
	select {
	case <-child.done:
	case <-ctx.Done():
		return fmt.Errorf("%s has not stopped: %w", n.name(), context.Cause(ctx))
	}
	if child.err != nil {
		return errors.New(child.obituary())
	}
	return nil
}

func (n *comparedNode) tellToEnd(sig syscall.Signal) (*devChild, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.signal(sig); err != nil {
		return nil, err
	}
	n.told = true
	return n.child, nil
}

func (n *comparedNode) pause() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(n.child.cmd.Process.Pid)
}

func (n *comparedNode) resume() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.signal(syscall.SIGCONT)
}

// signal sends a signal to the process, which must run. The caller holds mu.
func (n *comparedNode) signal(sig syscall.Signal) error {
	if n.child == nil {
		return fmt.Errorf("send %v to %s: it was not started", sig, n.name())
	}
	return n.child.signal(sig)
}

// usage is what the node's processes have used.
func (n *comparedNode) usage() processUsage {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.child == nil {
		return n.past
	}
	now := runningUsage(n.child.cmd.Process.Pid)
	if n.child.ended() { // perhaps while its usage was read
		now = endedUsage(n.child.cmd.ProcessState)
	}
	return n.past.plus(now)
}

// close ends the process, and says so if it has ended by itself before.
func (n *comparedNode) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.discard = true
	switch {
	case n.child == nil:
		return nil
	case n.child.ended():
		if n.told {
			return nil
		}
		return errors.New(n.child.obituary())
	}
	n.child.cmd.Process.Kill() // also if it is stopped; an error says that it has ended just now
	<-n.child.done
	return nil
}
