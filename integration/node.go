package integration

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Node is one server of a cluster: an address and a data directory for good, and the process that
// serves it at the moment.
type Node struct {
	*Process
	Name     string
	HTTP     string            // host:port of the HTTP listener
	Cluster  string            // host:port of the node-to-node listener
	Dir      string            // the data directory
	Settings map[string]string // by key of the configuration file
	AP       bool              // it runs without consensus

	within []string      // a command that runs what follows it in the place of itself; none: nothing
	tls    *Certificates // how tests trust the HTTP listener; nil: plain HTTP
	log    string
}

// newNode fills in what every node has; the test may change Settings until it starts the node.
func newNode(t testing.TB, dir string, name string) *Node {
	t.Helper()
	n := &Node{Name: name, HTTP: FreeAddr(t), Cluster: FreeAddr(t), Dir: filepath.Join(dir, name), log: filepath.Join(dir, name+".log")}
	n.Settings = map[string]string{
		"node.name":    n.Name,
		"http.addr":    n.HTTP,
		"cluster.addr": n.Cluster,
		"data.dir":     n.Dir,
		// With the default of 5 ms, clusters that nobody asks anything take most of two processors when they have the
		// race detector.
		"raft.commit-timeout": "20ms",
	}
	return n
}

// args is the command line: every key of the configuration file is a flag with dashes for dots.
func (n *Node) args() []string {
	args := []string{"server"}
	for _, key := range slices.Sorted(maps.Keys(n.Settings)) {
		args = append(args, "--"+strings.ReplaceAll(key, ".", "-")+"="+n.Settings[key])
	}
	return args
}

// Start starts the node's process, which must not run.
func (n *Node) Start(t testing.TB) {
	t.Helper()
	p, err := launch(t, n.log, nil, slices.Concat(n.within, []string{Binary(t)}, n.args()))
	if err != nil {
		t.Fatalf("start node %s: %v", n.Name, err)
	}
	n.Process = p
}

// URL is the base of the node's HTTP interface, without a slash at its end.
func (n *Node) URL() string {
	if n.tls != nil {
		return "https://" + n.HTTP
	}
	return "http://" + n.HTTP
}

// Eureka is the service URL that clients are configured with.
func (n *Node) Eureka() string { return n.URL() + "/eureka/" }

// Running says whether the node's process has not ended; a paused one runs.
func (n *Node) Running() bool { return n.Process != nil && n.Process.Running() }

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
	n.Signal(t, syscall.SIGSTOP)
	for {
		var how syscall.WaitStatus
		switch _, err := syscall.Wait4(n.Pid(), &how, syscall.WUNTRACED, nil); {
		case err == syscall.EINTR:
		case err != nil || !how.Stopped():
			t.Fatalf("node %s was paused and ended: %v", n.Name, err)
		default:
			return
		}
	}
}

// Resume wakes a paused node.
func (n *Node) Resume(t testing.TB) {
	t.Helper()
	n.Signal(t, syscall.SIGCONT)
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
			t.Fatalf("node %s has ended; its log:\n%s", n.Name, tail(n.log, 30))
		}
		if err := n.Ready(); err != nil {
			return err
		}
		if n.AP {
			return nil // it is ready when it has what the others have
		}
		if answer := n.Get("/eureka/apps?consistency=linearizable"); answer.Status != 200 {
			return fmt.Errorf("node %s: linearizable read: %v", n.Name, answer)
		}
		return nil
	})
}
