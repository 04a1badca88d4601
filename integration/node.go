package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Node is one server of a cluster: a fixed address and data directory, and its current process.
type Node struct {
	localcluster.Node
	process *Process // the newest; nil before the first start
	secrets *secrets // that the responses must not reveal; may be nil
	runs    string   // the path of the program; "" for the result of program
	within  []string // a command line prefix under which the server runs (unshare …); may be empty
}

// newNode fills in what every node has; the test may change Settings until it starts the node.
func newNode(t testing.TB, dir string, name string) *Node {
	t.Helper()
	return &Node{Node: localcluster.Node{
		Name: name, Datacenter: "dc1", Mode: localcluster.CP, HTTP: FreeAddr(t), Cluster: FreeAddr(t),
		Dir: filepath.Join(dir, name), LogFile: filepath.Join(dir, name+".log"),
		// With the default of 5 ms, idle clusters with the race detector take most of two processors.
		Settings: map[string]string{"test.commit-timeout": "20ms"},
	}}
}

// serverAt returns a server that this package's harness did not start.
func serverAt(addr string) *Node { return &Node{Node: localcluster.Node{HTTP: addr}} }

// Start starts the node's process, which must not run yet.
func (n *Node) Start(t testing.TB) {
	t.Helper()
	need.OK(t, n.Node.Start(append(n.within[:len(n.within):len(n.within)], n.program(t))...))
	n.process = adopt(t, n.Process)
}

// program returns what the node runs: the program under test, or, for the first node of its cluster, the one with the
// race detector, if ROLLCALL_RACE_BIN names it. That one costs more than twice the time, and all nodes of a cluster
// do the same work.
func (n *Node) program(t testing.TB) string {
	t.Helper()
	if n.runs != "" {
		return n.runs
	}
	if race := os.Getenv("ROLLCALL_RACE_BIN"); race != "" && strings.HasSuffix(n.Name, "1") {
		return race
	}
	return Binary(t)
}

// Eureka returns the service URL that clients are configured with.
func (n *Node) Eureka() string { return withUser(n.URL()+"/eureka/", "rollcall", n.Token) }

// Signal sends a signal to the node's process.
func (n *Node) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	n.process.Signal(t, sig)
}

// ExitCode waits for the end of the node's process and returns its exit code, -1 after a signal.
func (n *Node) ExitCode(t testing.TB, limit time.Duration) int {
	t.Helper()
	return n.process.ExitCode(t, limit)
}

// Output returns everything that the node's processes printed so far.
func (n *Node) Output(t testing.TB) string {
	t.Helper()
	return n.process.Output(t)
}

// Stop ends the node as a service manager does, with SIGTERM, and waits for its end.
func (n *Node) Stop(t testing.TB) {
	t.Helper()
	n.Signal(t, syscall.SIGTERM)
	code := n.ExitCode(t, StopLimit)
	expect.That(t, code == 0, "node %s: exit code %d after SIGTERM, want 0", n.Name, code)
}

// Pause freezes the node and returns when it has stopped; its sockets stay open.
func (n *Node) Pause(t testing.TB) {
	t.Helper()
	need.OK(t, n.Node.Pause())
}

// Resume wakes a paused node.
func (n *Node) Resume(t testing.TB) {
	t.Helper()
	need.OK(t, n.Node.Resume())
}

// Ready returns nil if the node may serve.
func (n *Node) Ready() error {
	response := n.Get("/readyz")
	return unless(response.Status == 200, "node %s: /readyz: %v", n.Name, response)
}

// WaitReady waits until the node may serve and, with consensus, reads on it are linearizable, which needs it to have
// caught up with the others. Without consensus it is ready when it has copied what the others have.
func (n *Node) WaitReady(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), ReadyLimit, fmt.Errorf("not within %v", ReadyLimit))
	defer cancel()
	need.OK(t, n.AwaitReady(ctx, true))
}

// StopLimit is how long a process may take from SIGTERM to its end.
const StopLimit = 30 * time.Second

// Binary returns the path of the rollcall program under test, as TestMain has put it into ROLLCALL_BIN.
func Binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("ROLLCALL_BIN")
	need.That(t, path != "", "ROLLCALL_BIN is not set; TestMain builds the program and sets it")
	return path
}

// Process is one child of the test.
type Process struct{ *localcluster.Process }

// Launch starts the program under test with args; stdout and stderr are added to the file log. When the test ends, so
// does the process.
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
	return adopt(t, p), nil
}

// adopt ends a process with the test, and fails the test if the process printed what no process may print: a panic, a
// data race (which a program built with the race detector reports), or a log line that has a key twice.
func adopt(t testing.TB, started *localcluster.Process) *Process {
	p := &Process{started}
	t.Cleanup(func() {
		p.Kill()
		out := p.Output(t)
		for _, cry := range []string{"WARNING: DATA RACE", "\npanic: ", "\nfatal error: "} {
			if i := strings.Index(out, cry); i >= 0 {
				t.Errorf("%s: the process cried:\n%.4000s", filepath.Base(p.LogFile()), out[i:])
			}
		}
		for line := range strings.Lines(out) {
			if key := repeatedKey(line); key != "" {
				t.Errorf("%s: %q is twice in %s", filepath.Base(p.LogFile()), key, line)
			}
		}
	})
	return p
}

// logKey begins a field of a log line, as log.format text or json writes it. A quote in a value has a backslash
// before it.
var logKey = regexp.MustCompile(`(?:^| )([\w.-]+)=(?:"(?:[^"\\]|\\.)*")?|[{,]"([\w.-]+)":(?:"(?:[^"\\]|\\.)*")?`)

// repeatedKey returns a key that a log line has twice, or "".
func repeatedKey(line string) string {
	if !strings.HasPrefix(line, "time=") && !strings.HasPrefix(line, `{"time":`) {
		return ""
	}
	keys := map[string]bool{}
	for _, found := range logKey.FindAllStringSubmatch(line, -1) {
		key := found[1] + found[2]
		if keys[key] {
			return key
		}
		keys[key] = true
	}
	return ""
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool { return !p.Ended() }

// Signal sends a signal.
func (p *Process) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	need.OK(t, p.Process.Signal(sig))
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

// Output returns everything that the process, and earlier ones with the same log, printed so far.
func (p *Process) Output(t testing.TB) string {
	t.Helper()
	out, err := os.ReadFile(p.LogFile())
	need.OKf(t, err, "read log")
	return string(out)
}

// FreeAddr returns an address of 127.0.0.1 where no process listens, and that no other caller gets while the tests
// run.
func FreeAddr(t testing.TB) string {
	t.Helper()
	port, err := localcluster.ClaimPort()
	need.OK(t, err)
	return localcluster.Address(port)
}

// pollInterval is the pause between probes of Eventually.
const pollInterval = 20 * time.Millisecond

// Eventually waits until probe returns nil, and fails the test with its last error if that takes longer than limit.
// Limits are for liveness only: about ten times what is expected.
func Eventually(t testing.TB, limit time.Duration, what string, probe func() error) {
	t.Helper()
	need.OKf(t, Poll(limit, probe), "%s: not within %v", what, limit)
}

// Poll calls probe until it returns nil or limit has passed, and returns its last error.
func Poll(limit time.Duration, probe func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for deadline := time.Now().Add(limit); ; <-ticker.C {
		err := probe()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// Pass lets d pass while a process under test does something by its own clock, such as ending a lease. To wait for a
// condition, use Eventually.
func Pass(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("the test was ended while time passed")
	}
}

// notYet returns the error of a probe that counts.
func notYet(have, want int) error { return unless(have >= want, "%d of %d so far", have, want) }

// unless returns nil if ok, and otherwise an error with this text.
func unless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
