package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// startLock runs rollcall lock in a process of its own: this test program, which TestMain turns into rollcall. Its
// command is a shell with the script, which prints its pid first. startLock returns when it has.
func startLock(t *testing.T, f *fakeLocks, script string) (process *exec.Cmd, commandPID int, out io.Reader) {
	t.Helper()
	process = exec.Command(os.Args[0], "lock", "demo", "--addr", f.URL, "--", "sh", "-c", script)
	process.Stderr = os.Stderr // a file: processes that the command leaves behind do not keep Wait waiting
	pipe := need.Got(process.StdoutPipe())(t)
	need.OK(t, process.Start())
	overdue := time.AfterFunc(time.Minute, func() { process.Process.Kill() })
	t.Cleanup(func() { overdue.Stop() })
	reader := bufio.NewReader(pipe)
	need.Got(fmt.Fscanln(reader, &commandPID))(t)
	return process, commandPID, reader
}

func TestLockPassesSignalsToTheCommandAndReleasesAfterIt(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script string
		signal syscall.Signal
		code   int
	}{
		{name: "a command that handles the signal", script: `sleep 600 & trap "kill $!; exit 5" INT; echo $$; wait`, signal: syscall.SIGINT, code: 5},
		{name: "a command that the signal ends", script: "echo $$; exec sleep 600", signal: syscall.SIGTERM, code: exitSignal + int(syscall.SIGTERM)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeLocks(t, new(fakeLocks))
			process, _, _ := startLock(t, f, tc.script)
			process.Process.Signal(syscall.SIGTSTP) // a stopped rollcall would not see that the lock is lost
			process.Process.Signal(tc.signal)
			process.Wait()
			expect.Equal(t, process.ProcessState.ExitCode(), tc.code, "exit code")
			want := []string{"POST /sessions", "PUT /locks/demo", "DELETE /locks/demo", "DELETE /sessions/s1"}
			expect.That(t, slices.Equal(f.called(), want), "called %q, want %q", f.called(), want)
		})
	}
}

func TestLockKillsTheCommandWhenRollcallIsKilled(t *testing.T) {
	becomeSubreaper(t)
	f := newFakeLocks(t, new(fakeLocks))
	process, commandPID, _ := startLock(t, f, "echo $$; exec sleep 600")
	process.Process.Kill()
	process.Wait()
	overdue := time.AfterFunc(time.Minute, func() { syscall.Kill(commandPID, syscall.SIGTERM) })
	defer overdue.Stop()
	var status syscall.WaitStatus
	_, err := syscall.Wait4(commandPID, &status, 0, nil)
	expect.That(t, err == nil && status.Signal() == syscall.SIGKILL, "the command ended with %#x, %v, want that it was killed", status, err)
}

func TestLockStopsWaitingAtASignal(t *testing.T) {
	f := newFakeLocks(t, &fakeLocks{heldByAnother: true})
	process := exec.Command(os.Args[0], "lock", "demo", "--addr", f.URL, "--verbose", "--", "true")
	stderr := need.Got(process.StderrPipe())(t)
	need.OK(t, process.Start())
	overdue := time.AfterFunc(time.Minute, func() { process.Process.Kill() })
	defer overdue.Stop()
	// The first line says that rollcall waits for the lock.
	line, err := bufio.NewReader(stderr).ReadString('\n')
	need.That(t, err == nil, "it said %q, %v", line, err)
	process.Process.Signal(os.Interrupt)
	process.Wait()
	expect.Equal(t, process.ProcessState.ExitCode(), exitSignal+int(syscall.SIGINT), "exit code")
}

// becomeSubreaper makes this process the parent of its orphaned descendants, like the first process of a container.
// They are in the same session then, which keeps the kernel from resuming stopped ones.
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
