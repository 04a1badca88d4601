package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// network is the names and addresses of containers. Each address is one of loopback, and a container knows names by its file of hosts,
// which Go reads again after 5 s, as a cluster's DNS is.
type network struct {
	mu         sync.Mutex
	names      map[string][]string // addresses by name
	containers map[*container]bool
	last       int // of the addresses
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	need.Present(t, os.Geteuid() == 0, "containers are imitated by chroot: run as root")
	return &network{names: map[string][]string{}, containers: map[*container]bool{}}
}

// address is one that no container had before.
func (n *network) address() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 64+pid>>8&127, pid&255, n.last)
}

// set gives a name its addresses, and writes the files of hosts anew.
func (n *network) set(t *testing.T, name string, addresses ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[name] = addresses
	for c := range n.containers {
		n.writeHosts(t, c)
	}
}

func (n *network) addresses(name string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[name]
}

func (n *network) writeHosts(t *testing.T, c *container) {
	t.Helper()
	text := "127.0.0.1 localhost\n"
	for name, addresses := range n.names {
		for _, address := range addresses {
			text += address + " " + name + "\n"
		}
	}
	need.OK(t, os.WriteFile(filepath.Join(c.root, "etc/hosts"), []byte(text), 0o644))
}

// client calls containers by their names.
func (n *network) client() *http.Client {
	dial := func(ctx context.Context, _, to string) (net.Conn, error) {
		name, port, _ := net.SplitHostPort(to)
		addresses := n.addresses(name)
		if len(addresses) == 0 {
			return nil, fmt.Errorf("no such host: %s", name)
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", net.JoinHostPort(addresses[0], port))
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 5 * time.Second}
}

// command is the program in a container, as its user, with its arguments and nothing else: there is no other file.
func (n *network) command(t *testing.T, c *container, args ...string) *exec.Cmd {
	t.Helper()
	c.mount(t, "etc")
	n.mu.Lock()
	n.containers[c] = true
	n.writeHosts(t, c)
	n.mu.Unlock()
	inside := filepath.Join(c.root, "rollcall")
	if err := os.Link(program(t), inside); !errors.Is(err, os.ErrExist) {
		need.OK(t, err)
	}
	command := exec.CommandContext(t.Context(), "/rollcall", args...)
	command.Dir, command.Env = "/", c.env
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: user, Gid: user}, Pdeathsig: syscall.SIGKILL}
	return command
}

func (n *network) start(t *testing.T, c *container) {
	t.Helper()
	c.process, c.ended = n.command(t, c, c.args...), make(chan error, 1)
	log := need.Got(os.Create(filepath.Join(c.root, "log")))(t)
	c.process.Stdout, c.process.Stderr = log, log
	need.OK(t, c.process.Start())
	log.Close()
	process := c.process
	go func() { c.ended <- process.Wait(); close(c.ended) }()
	t.Cleanup(func() {
		process.Process.Kill()
		<-c.ended
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(c.root, "log"))
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			t.Logf("%s said:\n%s", c.root, strings.Join(lines[max(0, len(lines)-15):], "\n"))
		}
	})
}

// stop ends a container as Kubernetes and Compose do.
func (n *network) stop(t *testing.T, c *container, grace time.Duration) {
	t.Helper()
	need.OK(t, c.process.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-c.ended:
		expect.OKf(t, err, "the end of a container")
	case <-time.After(grace):
		t.Fatalf("a container still runs after %v of grace", grace)
	}
	n.mu.Lock()
	delete(n.containers, c)
	n.mu.Unlock()
}

func await(t *testing.T, what string, condition func() error) {
	t.Helper()
	const limit = 2 * time.Minute
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		need.That(t, time.Now().Before(deadline), "%s: not within %v: %v", what, limit, err)
	}
}
