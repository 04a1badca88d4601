package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// rollcall runs one command of the program to its end and returns its standard output. A command that was refused,
// because there is no leader at the moment, did nothing, and is run again.
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

// wantLs is what `rollcall ls` at a node must show.
func wantLs(t *testing.T, want ...string) func(*Node) error {
	return func(n *Node) error {
		got := listed(t, n.URL())
		return unless(slices.Equal(got, want), "%q, want %q", got, want)
	}
}

// listed is what `rollcall ls -o json` shows: APP/id/STATUS.
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

// mustEndWell waits for the end of a process, and expects exit code 0.
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

// TestLockCommandRunsOneAtATime: the second command waits for the first to end, then runs; a command whose holder was
// paused for too long is ended.
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

func TestActOfAPageIsThatOfItsCommand(t *testing.T) {
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
