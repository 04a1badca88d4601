package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// rollcall runs one command of the program to its end and returns its standard output. A command that was refused,
// because there is currently no leader, did nothing, and is run again.
func rollcall(t *testing.T, args ...string) []byte {
	t.Helper()
	return runProgram(t, Binary(t), args...)
}

// benchmark is rollcall for the benchmarks' program.
func benchmark(t *testing.T, args ...string) []byte {
	t.Helper()
	return runProgram(t, benchProgram(t), args...)
}

func runProgram(t testing.TB, path string, args ...string) []byte {
	t.Helper()
	out, err := readUntilTaken(func() ([]byte, error) {
		out, err := exec.Command(path, args...).Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return out, err
		}
		said := string(exit.Stderr)
		if strings.Contains(said, "answered 503") && !strings.Contains(said, client.ErrUnknownOutcome.Error()) {
			return nil, fmt.Errorf("%w: %w: %s", errRefused, err, said)
		}
		return nil, fmt.Errorf("%w: %s", err, said)
	})
	need.OKf(t, err, "%s %s", filepath.Base(path), strings.Join(args, " "))
	return out
}

func decode(t *testing.T, document []byte, into any) {
	t.Helper()
	need.OKf(t, json.Unmarshal(document, into), "%s", document)
}

func TestCommandsRegisterListAndCancel(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, smallConfig(ap, 2))
		first, last := c.Nodes[0], c.Nodes[len(c.Nodes)-1]
		rollcall(t, "register", "orders", "--id", "orders-1", "--host", "localhost", "--ip", "127.0.0.1", "--port", "8080", "--addr", first.URL())
		c.mustOnEvery(t, "ls", wantLs(t, "ORDERS/orders-1/UP"))
		rollcall(t, "cancel", "orders/orders-1", "--addr", last.URL())
		c.mustOnEvery(t, "ls after the cancel", wantLs(t))
	})
}

// wantLs returns a check of what `rollcall ls` shows at a node.
func wantLs(t *testing.T, want ...string) func(*Node) error {
	return func(n *Node) error {
		got := listed(t, n.URL())
		return unless(slices.Equal(got, want), "%q, want %q", got, want)
	}
}

// listed returns what `rollcall ls -o json` shows: APP/id/STATUS.
func listed(t *testing.T, addr string) []string {
	t.Helper()
	var instances []struct{ App, ID, Status string }
	decode(t, rollcall(t, "ls", "-o", "json", "--addr", addr), &instances)
	var names []string
	for _, i := range instances {
		names = append(names, i.App+"/"+i.ID+"/"+i.Status)
	}
	return names
}

func TestRegisterCommandRenewsUntilInterrupted(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, smallConfig(ap, 2))
		n := c.Nodes[1]
		keeper, err := Launch(t, filepath.Join(t.TempDir(), "log"), nil, "register", "orders", "--id", "orders-1",
			"--lease", "3s", "--interval", "1s", "--heartbeat", "--addr", n.URL())
		need.OK(t, err)
		life := lifeCycle{Cluster: c, app: "ORDERS", id: "orders-1"}
		life.everywhere(t, "UP")
		for range 4 { // longer than its lease
			awaitRenewal(t, n, "ORDERS", "orders-1")
		}
		keeper.Signal(t, syscall.SIGINT)
		keeper.mustEndWell(t, StopLimit, "after Ctrl-C")
		said := keeper.Output(t)
		expect.That(t, strings.Contains("\n"+said, "\nregistered ORDERS/orders-1 at n2; its lease of 3 s is renewed every 1s"), "it never said what it registered; it said:\n%s", said)
		c.mustListEverywhere(t)
	})
}

// startLock starts `rollcall lock demo -- CMD` in a terminal of its own.
func startLock(t *testing.T, n *Node, name string, ttl time.Duration, command ...string) *Process {
	t.Helper()
	args := append([]string{"lock", "demo", "--addr", n.URL(), "--ttl", ttl.String(), "--lock-delay", "1s", "--"}, command...)
	return need.Got(Launch(t, filepath.Join(t.TempDir(), name), nil, args...))(t)
}

// mustEndWell waits for the end of a process, and checks for exit code 0.
func (p *Process) mustEndWell(t *testing.T, limit time.Duration, when string) {
	t.Helper()
	code := p.ExitCode(t, limit)
	expect.That(t, code == 0, "%s: exit code %d, want 0; it said:\n%s", when, code, p.Output(t))
}

// awaitLine waits until a process has printed a line.
func (p *Process) awaitLine(t *testing.T, line string) {
	t.Helper()
	Eventually(t, ReadyLimit, "the process says "+line, func() error {
		out := p.Output(t)
		return unless(strings.Contains(out, line+"\n"), "it said %q", out)
	})
}

// The second command waits for the first to end, then runs; a command whose holder was paused for too long is ended.
func TestLockCommandRunsOneAtATime(t *testing.T) {
	t.Parallel()
	const kept, short = 30 * time.Second, 3 * time.Second
	c := StartCluster(t, withSteadyLeader(Config{}))
	first := startLock(t, c.Nodes[0], "first", kept, "sh", "-c", "echo first $ROLLCALL_FENCE; exec sleep 3")
	Eventually(t, ReadyLimit, "the first runs", func() error {
		return unless(strings.HasPrefix(first.Output(t), "first "), "it said %q", first.Output(t))
	})
	second := startLock(t, c.Nodes[1], "second", kept, "sh", "-c", "echo second; exit 7")
	first.mustEndWell(t, ReadyLimit, "the first")
	if code := second.ExitCode(t, ReadyLimit); code != 7 || second.Output(t) != "second\n" {
		t.Errorf("the second ended with %d, want its command's 7, and said %q", code, second.Output(t))
	}

	asleep := startLock(t, c.Nodes[2], "asleep", short, "sh", "-c", "echo asleep; exec sleep 1000")
	asleep.awaitLine(t, "asleep")
	asleep.Signal(t, syscall.SIGSTOP)
	heir := startLock(t, c.Nodes[0], "heir", kept, "sh", "-c", "echo heir")
	heir.mustEndWell(t, ReadyLimit, "the command that waits for the lock of a paused holder")
	asleep.Signal(t, syscall.SIGCONT)
	expect.That(t, asleep.ExitCode(t, ReadyLimit) != 0, "a command whose lock was lost ended with 0")
}

func TestActOfAPageMatchesItsCommand(t *testing.T) {
	t.Parallel()
	n := StartCluster(t, Config{Nodes: 1}).Nodes[0]
	for _, id := range []string{"by-the-page", "by-the-command", "up"} {
		need.Equal(t, n.Register(Instance{App: "ORDERS", ID: id, Duration: 300}).Outcome(), Done, "a registration is")
	}
	form := url.Values{"app": {"ORDERS"}, "id": {"by-the-page"}, "reason": {"kernel update"}, "author": {"ann"}}
	done := n.Do(Request{Method: http.MethodPost, Path: "/ui/acts/drain", Body: []byte(form.Encode()), ContentType: "application/x-www-form-urlencoded"})
	need.That(t, done.Outcome() == Done || done.Status == http.StatusSeeOther, "the page says %+v", done)
	form.Set("id", "by-the-command")
	page := string(n.Get("/ui/acts/drain?" + form.Encode()).Body)
	shown := regexp.MustCompile(`(?s)<pre id="command"[^>]*>rollcall (.*?)</pre>`).FindStringSubmatch(page)
	need.That(t, shown != nil, "the page has no command: %s", page)
	out, err := exec.Command("sh", "-c", Binary(t)+" "+html.UnescapeString(shown[1])+" --settle 0s").CombinedOutput()
	need.That(t, err == nil, "%s: %v: %s", shown[1], err, out)
	one, two := need.Got(n.Explain("ORDERS", "by-the-page"))(t), need.Got(n.Explain("ORDERS", "by-the-command"))(t)
	need.That(t, one.Override != nil && two.Override != nil, "by the page %+v, by the command %+v", one, two)
	expect.That(t, one.Status == registry.OutOfService.String() && two.Status == one.Status && two.Override.Drain && one.Override.Drain &&
		one.Override.Author == "ann" && two.Override.Author == "ann" && one.Override.Reason == two.Override.Reason,
		"by the page %+v, by the command %+v", one.Override, two.Override)
}

// devLine is what dev prints for a node.
var devLine = regexp.MustCompile(`(?m)^node=(\d+) dc=dc(\d+) http=(\S+) pid=(\d+)$`)

// devPorts claims the ports that dev uses for the given number of datacenters, and returns the first. dev serves HTTP
// at three ports in a row, its nodes use the three that are 1000 lower among themselves, and each further datacenter
// uses those that are 100 higher.
func devPorts(t *testing.T, dcs int) int {
	t.Helper()
	var distances []int
	for dc := range dcs {
		for i := range 3 {
			distances = append(distances, 100*dc+i, 100*dc+i-1000)
		}
	}
	return need.Got(localcluster.ClaimPort(distances...))(t)
}

// startDev runs dev, which starts a cluster of three nodes per datacenter, and waits until dev prints that they are
// ready.
func startDev(t *testing.T, port int, data string, ap bool, dcs int) (*Process, []*Node) {
	t.Helper()
	mode := map[bool]string{false: "cp", true: "ap"}[ap]
	dev, err := Launch(t, filepath.Join(t.TempDir(), "dev.log"), nil,
		"dev", "--nodes", "3", "--mode", mode, "--dcs", strconv.Itoa(dcs), "--http-port", strconv.Itoa(port), "--data", data)
	need.OK(t, err)
	Eventually(t, ReadyLimit, "dev says ready", func() error {
		need.That(t, dev.Running(), "dev has ended: %s", dev.Output(t))
		out := dev.Output(t)
		return unless(strings.HasSuffix(out, "\nready\n"), "it says %q", out)
	})
	var nodes []*Node
	for i, line := range devLine.FindAllStringSubmatch(dev.Output(t), -1) {
		want := []string{strconv.Itoa(i%3 + 1), strconv.Itoa(i/3 + 1), localcluster.Address(port + 100*(i/3) + i%3)}
		expect.That(t, slices.Equal(line[1:4], want), "line %q, want node %s of datacenter %s at %s", line[0], want[0], want[1], want[2])
		mustLive(t, line[4])
		n := serverAt(line[3])
		n.Name, n.Mode = "node"+line[1], mode
		nodes = append(nodes, n)
	}
	need.That(t, len(nodes) == 3*dcs, "dev names %d nodes, want %d: %s", len(nodes), 3*dcs, dev.Output(t))
	return dev, nodes
}

// mustLive checks that a process exists.
func mustLive(t *testing.T, pid string) {
	t.Helper()
	expect.OKf(t, syscall.Kill(need.Got(strconv.Atoi(pid))(t), 0), "pid %s, which dev names", pid)
}

// interrupt sends dev what Ctrl-C sends, and waits until dev and its nodes have ended.
func interrupt(t *testing.T, dev *Process, nodes []*Node) {
	t.Helper()
	dev.Signal(t, syscall.SIGINT)
	dev.mustEndWell(t, StopLimit, "dev, after Ctrl-C")
	for _, n := range nodes {
		expect.OKf(t, n.Get("/healthz").is(0), "%s still answers after dev ended", n.Name)
	}
}

func TestDevClusterFindsItsDataAgain(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		port, data := devPorts(t, 1), filepath.Join(t.TempDir(), "data")
		dev, nodes := startDev(t, port, data, ap, 1)
		mustRegister(t, nodes[1], Instance{App: "KEPT", ID: "kept"})
		for _, n := range nodes {
			awaitListed(t, n, wantListed("kept"))
		}
		interrupt(t, dev, nodes)

		dev, nodes = startDev(t, port, data, ap, 1)
		for _, n := range nodes {
			Eventually(t, ReadyLimit, n.Name+" has the data of the first run", func() error {
				listing, err := n.Listing()
				if err != nil {
					return err
				}
				return wantListed("kept")(listing)
			})
		}
		interrupt(t, dev, nodes)
	})
}

func TestDevNamesThePortInUse(t *testing.T) {
	t.Parallel()
	port := devPorts(t, 1)
	// The second node's port for HTTP, and the third one's for the other nodes.
	for _, taken := range []string{localcluster.Address(port + 1), localcluster.Address(port - 998)} {
		t.Run(taken, func(t *testing.T) {
			l := need.Got(net.Listen("tcp", taken))(t)
			defer l.Close()
			data := filepath.Join(t.TempDir(), "data")
			dev := need.Got(Launch(t, filepath.Join(t.TempDir(), "dev.log"), nil, "dev", "--http-port", strconv.Itoa(port), "--data", data))(t)
			expect.That(t, dev.ExitCode(t, StopLimit) != 0, "exit code 0, want an error")
			out := dev.Output(t)
			expect.That(t, strings.Contains(out, taken), "it does not name %s: %s", taken, out)
		})
	}
}

// terminal is a terminal of tmux that runs one command.
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

// shows waits until the screen matches all patterns, and returns it.
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

// TestStatusWatchInATerminalFollowsTheLossOfLeaders runs `rollcall status --watch` in a terminal while the leader is
// killed, its successor stands still, and goes on: the screen says each time how the cluster is.
func TestStatusWatchInATerminalFollowsTheLossOfLeaders(t *testing.T) {
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
	s := openTerminal(t, Binary(t), "status", "--watch", "--interval", "200ms", "--addr", strings.Join(servers, ","))
	leads := func(n *Node) string { return `(?m)^` + n.Name + ` +leader ` }
	s.shows("three nodes", leads(first), `(?m)^ORDERS +1 +1 +0$`)

	first.Kill()
	second := c.Leader(c.Others(first)...)
	s.shows("the new leader", leads(second), `(?m)^`+first.Name+` +unreachable `)

	second.Pause(t)
	s.shows("that nothing leads", `cut off from the others`, `(?m)^`+second.Name+` +unreachable `)

	second.Resume(t)
	third := c.Leader(c.Others(first)...)
	s.shows("a leader again", leads(third))

	need.OK(t, s.tmux("send-keys", "C-c").Run())
	Eventually(t, ReadyLimit, "Ctrl-C ends it", func() error {
		return unless(s.tmux("has-session").Run() != nil, "it still runs")
	})
}

// A key is read on a terminal, where the line ends after it, and into a pipe, which gets only its bytes.
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
