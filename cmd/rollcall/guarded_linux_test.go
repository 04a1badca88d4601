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

	"github.com/seed-20419f34/rollcall/internal/need"
)

// startLock starts a process of rollcall lock, and returns it when its script has said its pid.
func startLock(t *testing.T, f *fakeLocks, script string) (process *exec.Cmd, command int, out io.Reader) {
	t.Helper()
	process = exec.Command(os.Args[0], "lock", "demo", "--addr", f.URL, "--", "sh", "-c", script)
	process.Stderr = os.Stderr // a file: what the command leaves behind keeps nobody waiting
	pipe := need.Got(process.StdoutPipe())(t)
	need.OK(t, process.Start())
	overdue := time.AfterFunc(time.Minute, func() { process.Process.Kill() })
	t.Cleanup(func() { overdue.Stop() })
	reader := bufio.NewReader(pipe)
	if _, err := fmt.Fscanln(reader, &command); err != nil {
		t.Fatal(err)
	}
	return process, command, reader
}

func TestSignalsReachTheCommandAndTheLockIsReleasedAfterIt(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script string
		signal syscall.Signal
		code   int
	}{
		{name: "a command that takes its leave", script: `sleep 600 & trap "kill $!; exit 5" INT; echo $$; wait`, signal: syscall.SIGINT, code: 5},
		{name: "a command that does not", script: "echo $$; exec sleep 600", signal: syscall.SIGTERM, code: exitSignal + int(syscall.SIGTERM)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeLocks(t, new(fakeLocks))
			process, _, _ := startLock(t, f, tc.script)
			process.Process.Signal(syscall.SIGTSTP) // a stopped rollcall could not hear of the lock's end
			process.Process.Signal(tc.signal)
			process.Wait()
			if code := process.ProcessState.ExitCode(); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if want := []string{"POST /sessions", "PUT /locks/demo", "DELETE /locks/demo", "DELETE /sessions/s1"}; !slices.Equal(f.called(), want) {
				t.Errorf("called %q, want %q", f.called(), want)
			}
		})
	}
}

func TestNoCommandOutlivesRollcallThatIsKilled(t *testing.T) {
	becomeSubreaper(t)
	f := newFakeLocks(t, new(fakeLocks))
	process, command, _ := startLock(t, f, "echo $$; exec sleep 600")
	process.Process.Kill()
	process.Wait()
	overdue := time.AfterFunc(time.Minute, func() { syscall.Kill(command, syscall.SIGTERM) })
	defer overdue.Stop()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(command, &status, 0, nil); err != nil || status.Signal() != syscall.SIGKILL {
		t.Errorf("the command ended with %#x, %v, want that it was killed", status, err)
	}
}

func TestAWaitIsGivenUpWithItsSignal(t *testing.T) {
	f := newFakeLocks(t, &fakeLocks{taken: true})
	process := exec.Command(os.Args[0], "lock", "demo", "--addr", f.URL, "--verbose", "--", "true")
	said := need.Got(process.StderrPipe())(t)
	need.OK(t, process.Start())
	overdue := time.AfterFunc(time.Minute, func() { process.Process.Kill() })
	defer overdue.Stop()
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		t.Fatalf("it said %q, %v", line, err)
	}
	process.Process.Signal(os.Interrupt)
	process.Wait()
	if code := process.ProcessState.ExitCode(); code != exitSignal+int(syscall.SIGINT) {
		t.Errorf("exit code %d, want %d", code, exitSignal+int(syscall.SIGINT))
	}
}
