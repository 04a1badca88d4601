package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// becomeSubreaper makes this process the parent of its descendants that lose theirs, as the first process of a
// container is. They are of the same session then, which keeps the kernel from letting stopped ones go on.
func becomeSubreaper(t *testing.T) {
	t.Helper()
	const setChildSubreaper = 36 // prctl(2)
	_, _, err := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
	need.That(t, err == 0, "%v", err)
	t.Cleanup(func() { syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 0, 0) })
}

// killedDev starts dev with one node, and kills dev when the node is ready.
func killedDev(t *testing.T, before func(node int)) (node int) {
	t.Helper()
	ports := need.Got(localcluster.ClaimPorts(1))(t)
	dev := exec.Command(os.Args[0], "dev", "--mode", config.AP, "--nodes", "1", "--http-port", strconv.Itoa(ports[0]), "--data", filepath.Join(t.TempDir(), "data"))
	out := need.Got(dev.StdoutPipe())(t)
	need.OK(t, dev.Start())
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "ready"; {
		if _, pid, ok := strings.Cut(lines.Text(), "pid="); ok {
			node, _ = strconv.Atoi(pid)
		}
	}
	before(node)
	dev.Process.Kill()
	dev.Wait()
	return node
}

func TestDevEndsItsNodesWhenItIsKilled(t *testing.T) {
	becomeSubreaper(t)
	for _, tc := range []struct {
		name   string
		before func(node int)
	}{
		{"a node that runs", func(int) {}},
		{"a node that is stopped", func(node int) { syscall.Kill(node, syscall.SIGSTOP) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := killedDev(t, tc.before)
			overdue := time.AfterFunc(time.Minute, func() { syscall.Kill(node, syscall.SIGKILL) })
			defer overdue.Stop()
			var status syscall.WaitStatus
			_, err := syscall.Wait4(node, &status, 0, nil)
			expect.That(t, err == nil && status.ExitStatus() == 0, "process %d: status %#x, %v, want that it ended by itself", node, status, err)
		})
	}
}
