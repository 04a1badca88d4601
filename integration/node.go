package integration

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// Node is one server of a cluster: an address and a data directory for good, and the process that
// serves it at the moment.
type Node struct {
	localcluster.Node
	process *Process // the newest; nil: none was started
	within  []string // a command that runs what follows it in the place of itself; none: nothing
}

// newNode fills in what every node has; the test may change Settings until it starts the node.
func newNode(t testing.TB, dir string, name string) *Node {
	t.Helper()
	return &Node{Node: localcluster.Node{
		Name: name, Datacenter: "dc1", Mode: localcluster.CP, HTTP: FreeAddr(t), Cluster: FreeAddr(t),
		Dir: filepath.Join(dir, name), LogFile: filepath.Join(dir, name+".log"),
		// With the default of 5 ms, clusters that are asked nothing take most of two processors when they have the
		// race detector.
		Settings: map[string]string{"raft.commit-timeout": "20ms"},
	}}
}

// serverAt is a server that this package's harness did not start.
func serverAt(addr string) *Node { return &Node{Node: localcluster.Node{HTTP: addr}} }

// Start starts the node's process, which must not run.
func (n *Node) Start(t testing.TB) {
	t.Helper()
	must(t, n.Node.Start(append(n.within[:len(n.within):len(n.within)], Binary(t))...))
	n.process = own(t, n.Process)
}

// Eureka is the service URL that clients are configured with.
func (n *Node) Eureka() string { return n.URL() + "/eureka/" }

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

// Output is everything that the node's processes printed so far.
func (n *Node) Output(t testing.TB) string {
	t.Helper()
	return n.process.Output(t)
}

// Stop ends the node as a service manager does, by SIGTERM, and waits for its end.
func (n *Node) Stop(t testing.TB) {
	t.Helper()
	n.Signal(t, syscall.SIGTERM)
	if code := n.ExitCode(t, StopLimit); code != 0 {
		t.Errorf("node %s: exit code %d after SIGTERM, want 0", n.Name, code)
	}
}

// Pause freezes the node and returns when it stands still; its sockets stay open.
func (n *Node) Pause(t testing.TB) {
	t.Helper()
	must(t, n.Node.Pause())
}

// Resume wakes a paused node.
func (n *Node) Resume(t testing.TB) {
	t.Helper()
	must(t, n.Node.Resume())
}

// Ready asks the node whether it may serve.
func (n *Node) Ready() error {
	answer := n.Get("/readyz")
	if answer.Status != 200 {
		return fmt.Errorf("node %s: /readyz: %v", n.Name, answer)
	}
	return nil
}

// WaitReady waits until the node may serve and, with consensus, reads on it are linearizable, which it
// can answer only when it has caught up with the others.
func (n *Node) WaitReady(t testing.TB) {
	t.Helper()
	Eventually(t, ReadyLimit, "node "+n.Name+" is ready", func() error {
		if !n.Running() {
			t.Fatalf("node %s %s", n.Name, n.Obituary())
		}
		if err := n.Ready(); err != nil {
			return err
		}
		if n.Mode == localcluster.AP {
			return nil // it is ready when it has what the others have
		}
		if answer := n.Get("/eureka/apps?consistency=linearizable"); answer.Status != 200 {
			return fmt.Errorf("node %s: linearizable read: %v", n.Name, answer)
		}
		return nil
	})
}
