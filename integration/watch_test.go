package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// watcher is a `rollcall watch` with JSON output.
type watcher struct{ *Process }

// watchLine is one line that it prints: a Change, unless Event names something else.
type watchLine struct {
	Event string
	api.Change
}

// startWatcher runs the command against nodes, in their order, and waits until it watches.
func startWatcher(t *testing.T, nodes []*Node, args ...string) watcher {
	t.Helper()
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.URL())
	}
	args = append([]string{"watch", "-o", "json", "--addr", strings.Join(addrs, ",")}, args...)
	w := watcher{need.Got(Launch(t, filepath.Join(t.TempDir(), "log"), nil, args...))(t)}
	Eventually(t, ReadyLimit, "rollcall watch begins", func() error { return notYet(len(w.lines(t)), 1) })
	return w
}

// lines are those printed whole so far, without those on standard error.
func (w watcher) lines(t *testing.T) []watchLine {
	t.Helper()
	var lines []watchLine
	for line := range strings.Lines(w.Output(t)) {
		if !strings.HasPrefix(line, "{") || !strings.HasSuffix(line, "\n") {
			continue
		}
		var l watchLine
		need.OKf(t, json.Unmarshal([]byte(line), &l), "rollcall watch printed %q", line)
		lines = append(lines, l)
	}
	return lines
}

// changes are the changes that it printed so far. A line that some may have been missed fails the test.
func (w watcher) changes(t *testing.T) []api.Change {
	t.Helper()
	var changes []api.Change
	for _, l := range w.lines(t) {
		switch l.Event {
		case "change":
			changes = append(changes, l.Change)
		case "reset":
			t.Fatalf("rollcall watch may have missed something: %+v", l)
		}
	}
	return changes
}

func TestWatchCommandPrintsWhatHappensOnAnotherNode(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, smallConfig(ap, 2))
		w := startWatcher(t, c.Nodes[:1], "orders")
		mustRegister(t, c.Nodes[1], Instance{App: "ELSE", ID: "else-1"})
		mustRegister(t, c.Nodes[1], Instance{App: "ORDERS", ID: "orders-1"})
		Eventually(t, ReadyLimit, "the registration is printed", func() error { return notYet(len(w.changes(t)), 1) })
		mustCancel(t, c.Nodes[len(c.Nodes)-1], "ORDERS", "orders-1")
		Eventually(t, ReadyLimit, "the cancel is printed", func() error { return notYet(len(w.changes(t)), 2) })
		for i, want := range []api.Change{
			{Action: "ADDED", Why: "registered", App: "ORDERS", ID: "orders-1", Status: "UP"},
			{Action: "DELETED", Why: "canceled", App: "ORDERS", ID: "orders-1", Status: "UP"},
		} {
			got := w.changes(t)[i]
			want.Index, want.Instance = got.Index, got.Instance
			expect.That(t, fmt.Sprint(got) == fmt.Sprint(want), "change %d is %+v, want %+v", i, got, want)
		}
	})
}

// poll is the response to a long poll.
type poll struct {
	Index   string
	Changes []api.Change
	err     error
}

func mustPoll(t *testing.T, n *Node, query string) poll {
	t.Helper()
	p := pollNode(n, query)
	need.OK(t, p.err)
	return p
}

func pollNode(n *Node, query string) poll {
	p, err := readUntilTaken(func() (poll, error) { return ask[poll](n, "/v1/rollcall/watch?"+query) })
	p.err = err
	return p
}
