package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// terminal is a terminal of tmux in which one command runs.
type terminal struct {
	*testing.T
	socket string
}

// openTerminal runs a command in a terminal of its own, of 110 columns and 34 lines, which ends with the test.
func openTerminal(t *testing.T, command ...string) terminal {
	t.Helper()
	dir := need.Got(os.MkdirTemp("", "tmux"))(t) // t.TempDir's names are too long for a socket
	s := terminal{t, filepath.Join(dir, "s")}
	t.Cleanup(func() {
		_ = s.tmux("kill-server").Run() // it has ended if its command has
		need.OK(t, os.RemoveAll(dir))
	})
	out, err := s.tmux(append([]string{"-f", os.DevNull, "new-session", "-d", "-x", "110", "-y", "34"}, command...)...).CombinedOutput()
	need.OKf(t, err, "tmux: %s", out)
	return s
}

func (s terminal) tmux(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-u", "-S", s.socket}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TERM=xterm")
	return cmd
}

// shows waits until the screen has matches of all patterns, and returns it.
func (s terminal) shows(what string, patterns ...string) (screen string) {
	s.Helper()
	Eventually(s.T, ReadyLimit, "the screen shows "+what, func() error {
		out, err := s.tmux("capture-pane", "-p").Output()
		if err != nil {
			return fmt.Errorf("capture the screen: %w", err)
		}
		screen = strings.TrimRight(string(out), "\n")
		for _, p := range patterns {
			if !regexp.MustCompile(p).MatchString(screen) {
				return fmt.Errorf("%q is missing in:\n%s", p, screen)
			}
		}
		return nil
	})
	s.Logf("%s:\n%s", what, screen)
	return screen
}

// TestTopInATerminalFollowsTheLossOfLeaders runs `rollcall top` in a terminal while the leader is killed, its successor stands
// still, and goes on: the screen says each time how the cluster is.
func TestTopInATerminalFollowsTheLossOfLeaders(t *testing.T) {
	_, err := exec.LookPath("tmux")
	need.Present(t, err == nil, "tmux is missing: apt-get install -y tmux")
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{}))
	mustRegister(t, c.Nodes[0], Instance{App: "ORDERS", ID: "orders-1", Duration: 3600})
	first := c.Leader()
	var servers []string
	for _, n := range append(c.Others(first), first) {
		servers = append(servers, n.URL())
	}
	s := openTerminal(t, Binary(t), "top", "--interval", "200ms", "--addr", strings.Join(servers, ","))
	leads := func(n *Node) string { return `(?m)^` + n.Name + ` +leader ` }
	s.shows("three nodes", leads(first), `Nodes 3 of 3`, `(?m)^1 +1 +0 +ORDERS`)

	first.Kill()
	second := c.Leader(c.Others(first)...)
	s.shows("the new leader", leads(second), `(?m)^`+first.Name+` +unreachable `, `Nodes 2 of 3`)

	second.Pause(t)
	s.shows("that nothing leads", `cut off from the others`, `Nodes 1 of 3`)

	second.Resume(t)
	third := c.Leader(c.Others(first)...)
	s.shows("a leader again", leads(third), `Nodes 2 of 3`)

	need.OK(t, s.tmux("send-keys", "q").Run())
	Eventually(t, ReadyLimit, "q ends it", func() error {
		return unless(s.tmux("has-session").Run() != nil, "it still runs")
	})
}

// TestValueOfAKeyEndsTheLineOnATerminal reads a key on a terminal, where the line ends behind it, and into a pipe, which gets its
// bytes alone.
func TestValueOfAKeyEndsTheLineOnATerminal(t *testing.T) {
	_, err := exec.LookPath("tmux")
	need.Present(t, err == nil, "tmux is missing: apt-get install -y tmux")
	t.Parallel()
	n := StartCluster(t, Config{Nodes: 1}).Nodes[0]
	rollcall := func(args ...string) []string {
		return append(append([]string{Binary(t), "kv"}, args...), "--addr", n.URL())
	}
	put, get := rollcall("put", "config/colour", "blue"), rollcall("get", "config/colour")
	out, err := exec.Command(put[0], put[1:]...).CombinedOutput()
	need.OKf(t, err, "%s", out)
	out = need.Got(exec.Command(get[0], get[1:]...).Output())(t)
	need.Equal(t, string(out), "blue", "a pipe gets")
	openTerminal(t, "sh", "-c", strings.Join(get, " ")+"; echo after; exec sleep 600").shows("the value", `(?m)^blue\nafter$`)
}
