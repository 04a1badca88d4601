package integration

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// StopLimit is how long a process may take from SIGTERM to its end.
const StopLimit = 30 * time.Second

// Binary returns the path of the rollcall program under test, as TestMain has put it into
// ROLLCALL_BIN.
func Binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("ROLLCALL_BIN")
	if path == "" {
		t.Fatal("ROLLCALL_BIN is not set; TestMain builds the program and sets it")
	}
	return path
}

// Process is one child of the test. The pipe on its stdin tells it, through ROLLCALL_PARENT_PIPE,
// to end when the test process does, however that ends.
type Process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{} // closed when the process has ended and cmd.ProcessState is set
	log    string
}

// Launch starts the program under test with args; stdout and stderr are added to the file log.
// When the test ends, so does the process.
func Launch(t testing.TB, log string, env []string, args ...string) (*Process, error) {
	t.Helper()
	return launch(t, log, env, append([]string{Binary(t)}, args...))
}

func launch(t testing.TB, log string, env, command []string) (*Process, error) {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own descriptor
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(append(os.Environ(), "ROLLCALL_PARENT_PIPE=1"), env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, stdin: stdin, exited: make(chan struct{}), log: log}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		p.Kill()
		p.checkLog(t)
	})
	return p, nil
}

// checkLog fails the test over what no process may ever print: a panic, or a data race, which a
// program built with the race detector reports.
func (p *Process) checkLog(t testing.TB) {
	t.Helper()
	out := p.Output(t)
	for _, cry := range []string{"WARNING: DATA RACE", "\npanic: ", "\nfatal error: "} {
		if i := strings.Index(out, cry); i >= 0 {
			t.Errorf("%s: the process cried:\n%.4000s", filepath.Base(p.log), out[i:])
		}
	}
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Running says whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Kill ends the process as kill -9 does and waits until it is gone. A paused one ends, too.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.exited
	p.stdin.Close()
}

// Signal sends a signal.
func (p *Process) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("%v to pid %d: %v", sig, p.Pid(), err)
	}
}

// ExitCode waits for the end of the process and returns its exit code, -1 after a signal.
func (p *Process) ExitCode(t testing.TB, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatalf("%s still runs after %v; it said:\n%s", filepath.Base(p.log), limit, p.Output(t))
		return 0
	}
}

// Output is everything that the process, and earlier ones with the same log, printed so far.
func (p *Process) Output(t testing.TB) string {
	t.Helper()
	out, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatalf("read log: %v", err)
	}
	return string(out)
}

// tail returns the last lines of a file, for a failure's report.
func tail(path string, lines int) string {
	out, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	all := bytes.Split(bytes.TrimRight(out, "\n"), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
