package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestNoNodeTakesAPauseOfTheWholeClusterForAHungDisk pauses all machines at once, as a snapshot of a host or
// a frozen storage does, for longer than a disk may hang.
func TestNoNodeTakesAPauseOfTheWholeClusterForAHungDisk(t *testing.T) {
	t.Parallel()
	pausedTogether(t, 2)
}

func allPausedRound(t *testing.T) { pausedTogether(t, 5) }

// pausedTogether pauses all nodes of a cluster with slow disks, again and again. Each must go on as if
// nothing had been, and nobody may lose a lease.
func pausedTogether(t *testing.T, times int) {
	const pause = 7 * time.Second
	c := StartCluster(t, Config{Settings: map[string]string{"test.sync-delay": "20ms"}})
	l := startLoad(t, 10, 20, 8, c.Nodes)
	for range times {
		for _, n := range c.Nodes {
			n.Pause(t)
		}
		Pass(t, pause)
		for _, n := range c.Nodes {
			n.Resume(t)
		}
		l.awaitProgress(t)
		for _, n := range c.Nodes {
			if !n.Running() {
				t.Errorf("%s ended after a pause, with code %d:\n%s", n.Name, n.ExitCode(t, StopLimit), n.LastWords(5))
			}
		}
		if t.Failed() {
			return
		}
	}
	l.stop()
	c.WaitReady()
	l.check(t, c.Nodes)
}

// TestALeaderWhoseDiskHangsGivesUpAndAnotherOneTakesWrites makes the leader's next write to its disk take
// longer than any is waited for.
func TestALeaderWhoseDiskHangsGivesUpAndAnotherOneTakesWrites(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, Config{})
	for _, n := range c.Nodes {
		n.Settings["config"] = filepath.Join(t.TempDir(), "rollcall.yaml")
		writeSettings(t, n, "0s")
	}
	c.Start()
	leader := c.Leader()
	others := c.Others(leader)
	began := time.Now()
	writeSettings(t, leader, "10s")
	leader.Signal(t, syscall.SIGHUP)
	Eventually(t, ReadyLimit, "the leader's disk hangs", func() error {
		if answer := leader.Register(Instance{App: "HUNG", ID: "hung"}); answer.Outcome() == Done {
			return errors.New("it was answered")
		}
		return nil
	})
	expect.Equal(t, leader.ExitCode(t, ReadyLimit), 3, "the node whose disk hangs ended with code")
	if out := leader.Output(t); !strings.Contains(out, "the disk hangs") {
		t.Errorf("the log of %s does not say that its disk hangs:\n%s", leader.Name, leader.LastWords(10))
	}
	for _, n := range others {
		mustRegisterSoon(t, n, Instance{App: "AFTER", ID: "of-" + n.Name})
	}
	t.Logf("a write was acknowledged %v after the disk began to hang", time.Since(began))
}

// writeSettings writes the file of settings of a node that has one.
func writeSettings(t *testing.T, n *Node, syncDelay string) {
	t.Helper()
	need.OK(t, os.WriteFile(n.Settings["config"], []byte("test: {sync-delay: "+syncDelay+"}\n"), 0o600))
}
