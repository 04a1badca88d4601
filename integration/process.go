package integration

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
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

// Process is one child of the test.
type Process struct{ *localcluster.Process }

// Launch starts the program under test with args; stdout and stderr are added to the file log.
// When the test ends, so does the process.
func Launch(t testing.TB, log string, env []string, args ...string) (*Process, error) {
	t.Helper()
	return launch(t, log, env, append([]string{Binary(t)}, args...))
}

func launch(t testing.TB, log string, env, command []string) (*Process, error) {
	t.Helper()
	p, err := localcluster.Start(log, env, command[0], command[1:]...)
	if err != nil {
		return nil, err
	}
	return own(t, p), nil
}

// own ends a process with the test, and fails the test over what no process may ever print: a panic, or a data
// race, which a program built with the race detector reports.
func own(t testing.TB, started *localcluster.Process) *Process {
	p := &Process{started}
	t.Cleanup(func() {
		p.Kill()
		out := p.Output(t)
		for _, cry := range []string{"WARNING: DATA RACE", "\npanic: ", "\nfatal error: "} {
			if i := strings.Index(out, cry); i >= 0 {
				t.Errorf("%s: the process cried:\n%.4000s", filepath.Base(p.LogFile()), out[i:])
			}
		}
	})
	return p
}

// Running says whether the process has not ended.
func (p *Process) Running() bool { return !p.Ended() }

// Signal sends a signal.
func (p *Process) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	must(t, p.Process.Signal(sig))
}

// ExitCode waits for the end of the process and returns its exit code, -1 after a signal.
func (p *Process) ExitCode(t testing.TB, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.Done():
		return p.State().ExitCode()
	case <-time.After(limit):
		t.Fatalf("%s still runs after %v; it said:\n%s", filepath.Base(p.LogFile()), limit, p.Output(t))
		return 0
	}
}

// Output is everything that the process, and earlier ones with the same log, printed so far.
func (p *Process) Output(t testing.TB) string {
	t.Helper()
	out, err := os.ReadFile(p.LogFile())
	if err != nil {
		t.Fatalf("read log: %v", err)
	}
	return string(out)
}
