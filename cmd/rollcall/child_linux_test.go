package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// startLock runs rollcall lock in a process of its own: this test program, which TestMain lets be rollcall. Its command is a
// shell with the script, which prints its pid first. startLock returns when it has.
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
