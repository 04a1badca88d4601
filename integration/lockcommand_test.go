package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// startLock starts `rollcall lock demo -- CMD` in a terminal of its own.
func startLock(t *testing.T, n *Node, name string, ttl time.Duration, command ...string) *Process {
	t.Helper()
	args := append([]string{"lock", "demo", "--addr", n.URL(), "--ttl", ttl.String(), "--lock-delay", "1s", "--"}, command...)
	p := need.Got(Launch(t, filepath.Join(t.TempDir(), name), nil, args...))(t)
	return p
}

// said waits until a process has printed a line.
func (p *Process) said(t *testing.T, line string) {
	t.Helper()
	Eventually(t, ReadyLimit, "the process says "+line, func() error {
		if out := p.Output(t); !strings.Contains(out, line+"\n") {
			return fmt.Errorf("it said %q", out)
		}
		return nil
	})
}

// TestLockCommandRunsOneAtATime: the second waits for the first to end, then runs; one whose holder was
// paused for too long is ended.
func TestLockCommandRunsOneAtATime(t *testing.T) {
	t.Parallel()
	const kept, short = 30 * time.Second, 3 * time.Second
	c := StartCluster(t, steadfast(Config{}))
	first := startLock(t, c.Nodes[0], "first", kept, "sh", "-c", "echo first $ROLLCALL_FENCE; exec sleep 3")
	Eventually(t, ReadyLimit, "the first runs", func() error {
		if !strings.HasPrefix(first.Output(t), "first ") {
			return fmt.Errorf("it said %q", first.Output(t))
		}
		return nil
	})
	second := startLock(t, c.Nodes[1], "second", kept, "sh", "-c", "echo second; exit 7")
	if code := first.ExitCode(t, ReadyLimit); code != 0 {
		t.Errorf("the first ended with %d: %s", code, first.Output(t))
	}
	if code := second.ExitCode(t, ReadyLimit); code != 7 || second.Output(t) != "second\n" {
		t.Errorf("the second ended with %d, want its command's 7, and said %q", code, second.Output(t))
	}

	asleep := startLock(t, c.Nodes[2], "asleep", short, "sh", "-c", "echo asleep; exec sleep 1000")
	asleep.said(t, "asleep")
	asleep.Signal(t, syscall.SIGSTOP)
	heir := startLock(t, c.Nodes[0], "heir", kept, "sh", "-c", "echo heir")
	if code := heir.ExitCode(t, ReadyLimit); code != 0 {
		t.Errorf("who waits for the lock of a paused holder ended with %d: %s", code, heir.Output(t))
	}
	asleep.Signal(t, syscall.SIGCONT)
	began := time.Now()
	code := asleep.ExitCode(t, ReadyLimit)
	expect.That(t, code != 0, "a command whose lock was lost ended with 0")
	t.Logf("the command ended %v after its holder woke without the lock: %s", time.Since(began).Round(time.Millisecond), asleep.Output(t))
}
