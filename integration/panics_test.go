package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	own "github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// panicsOver has a node run a program whose operations about an instance, or a key, panic.
func panicsOver(t *testing.T, n *Node, id string) {
	t.Helper()
	n.within = []string{"sh", "-c", fmt.Sprintf("ROLLCALL_PLANTED=panic:%s exec %s \"$@\"", id, plantedProgram(t))}
}

// One of three nodes without consensus panics over an instance. It goes on, has everything else, and says what it refuses.
func TestNodeWithoutConsensusRefusesWhatPanicsAndGoesOn(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, Config{AP: true})
	sender, other, victim := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	panicsOver(t, victim, "poison")
	c.Start()
	ids := []string{"good-1", "good-2", "poison", "good-3", "good-4"}
	for _, id := range ids {
		need.Equal(t, sender.Register(Instance{App: "ORDERS", ID: id, Duration: 3600}).Status, 204, "register "+id)
	}
	Eventually(t, replicated, "the sender gives the item up, and the cursor passes it", func() error {
		s, err := sender.Peers()
		if err != nil {
			return err
		}
		for _, p := range s.Peers {
			if p.Name != victim.HTTP {
				continue
			}
			if len(p.Refused) != 1 || p.Refused[0].ID != "poison" || p.Refused[0].App != "ORDERS" || p.State != "ok" || p.LagChanges != 0 {
				return fmt.Errorf("peer %s: %+v", p.Name, p)
			}
			return nil
		}
		return fmt.Errorf("there is no peer %s: %+v", victim.Name, s.Peers)
	})
	for _, n := range []*Node{other, victim} {
		Eventually(t, replicated, n.Name+" has the rest of the batch", func() error {
			listing, err := n.Listing()
			if err != nil {
				return err
			}
			for _, id := range ids {
				_, there := listing[id]
				if want := n == other || id != "poison"; there != want {
					return fmt.Errorf("%s is there: %t", id, there)
				}
			}
			return nil
		})
	}
	said := need.Got(victim.Peers())(t)
	need.That(t, len(said.Refused) == 1 && said.Refused[0].ID == "poison" && said.Refused[0].From == sender.Name && strings.Contains(said.Refused[0].Text, "planted"),
		"refused by the receiver: %+v", said.Refused)
	expect.That(t, metric(t, victim, "rollcall_store_operation_panics_total") >= 3, "fewer than three tries were counted")
	expect.Equal(t, strings.Count(victim.Output(t), "an operation panicked, which is a defect"), 1, "lines of the log about it")
	response := victim.Register(Instance{App: "ORDERS", ID: "poison", Duration: 3600})
	expect.That(t, response.Status == 500 && strings.Contains(string(response.Body), "nothing was changed"), "a client's registration that panics: %v", response)
	need.That(t, victim.Running(), "the node has ended")
	need.OK(t, victim.Ready())
	shown, err := exec.Command(Binary(t), "peers", "--addr", victim.URL()).CombinedOutput()
	expect.That(t, err == nil && strings.Contains(string(shown), "ORDERS/poison"), "rollcall peers: %v, %s", err, shown)

	victim.Signal(t, syscall.SIGKILL)
	victim.ExitCode(t, ReadyLimit)
	victim.within = nil // a version without the defect
	victim.Start(t)
	victim.WaitReady(t)
	all := mustConverge(t, c.Nodes)
	expect.Equal(t, len(all), len(ids), "instances in the end")
}

// skipEntry runs rollcall recover --skip-entry, and returns what it says with its exit code.
func skipEntry(t *testing.T, n *Node, entry int) (said string, code int) {
	t.Helper()
	out, err := exec.Command(Binary(t), "recover", "--data-dir", n.Dir, "--skip-entry", strconv.Itoa(entry)).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		need.OK(t, err)
	}
	return string(out), code
}

var panickedEntry = regexp.MustCompile(`apply: log entry (\d+) panicked \(planted\) over key of poison \(operation 1 of 1 of batch \d+ of node n[123]\.`)

// The nodes of a cluster panic over one entry, until no majority is left. They name it, and go on without it when each was
// told to.
func TestClusterGoesOnWithoutAnEntryThatPanics(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, Config{})
	for _, n := range c.Nodes {
		panicsOver(t, n, "poison")
	}
	c.Start()
	consul := patientConsul(t, c.Leader())
	put := func(key string) error {
		_, err := consul.KV().Put(&api.KVPair{Key: key, Value: []byte("x")}, nil)
		return err
	}
	need.OK(t, put("before"))
	need.Equal(t, untilNotRefused(func() Response {
		return c.Nodes[0].Register(Instance{App: "ORDERS", ID: "o1", Duration: 3600})
	}).Status, 204, "register")
	need.That(t, put("poison") != nil, "what panics was acknowledged")
	entry := 0
	Eventually(t, ReadyLimit, "a majority has ended", func() error {
		return unless(len(c.Running()) < 2, "%d nodes run", len(c.Running()))
	})
	for _, n := range c.Nodes {
		if n.Running() { // alone it is told of no entry that it is to apply
			n.Signal(t, syscall.SIGKILL)
			n.ExitCode(t, ReadyLimit)
			continue
		}
		expect.Equal(t, n.ExitCode(t, ReadyLimit), 3, n.Name+" ends with exit code")
		found := panickedEntry.FindStringSubmatch(n.Output(t))
		need.That(t, found != nil, "%s does not name the entry and the operation:\n%s", n.Name, n.LastWords(20))
		at := need.Got(strconv.Atoi(found[1]))(t)
		need.That(t, entry == 0 || entry == at, "%s ended at entry %d, another one at %d", n.Name, at, entry)
		entry = at
	}
	first, second := c.Nodes[0], c.Nodes[1]
	for _, tt := range []struct {
		entry, code int
		want        string
	}{{0, 2, "0 is no log entry"}, {entry + 1000, 1, "beyond the end of the log"}, {1, 1, "Raft's own"}} {
		said, code := skipEntry(t, first, tt.entry)
		expect.That(t, code == tt.code && strings.Contains(said, tt.want), "--skip-entry %d: exit code %d, %s", tt.entry, code, said)
	}
	said, code := skipEntry(t, first, entry)
	need.That(t, code == 0 && strings.Contains(said, "without an effect: key of poison"), "--skip-entry %d: exit code %d, %s", entry, code, said)
	said, code = skipEntry(t, first, entry)
	expect.That(t, code == 1 && strings.Contains(said, "already"), "twice: exit code %d, %s", code, said)

	first.Start(t)
	second.Start(t)
	Eventually(t, ReadyLimit, "the node that skips the entry says why it refuses the other", func() error {
		return unless(strings.Contains(first.Output(t), fmt.Sprintf("node %s skips the log entries [], this node [%d]", second.Name, entry)), "not yet")
	})
	for _, n := range []*Node{first, second} {
		expect.That(t, n.Ready() != nil, "%s is ready, though no other node skips what it skips", n.Name)
		n.Signal(t, syscall.SIGKILL)
		n.ExitCode(t, ReadyLimit)
	}
	for _, n := range c.Nodes[1:] {
		said, code := skipEntry(t, n, entry)
		need.That(t, code == 0, "%s: exit code %d, %s", n.Name, code, said)
	}
	for _, n := range c.Nodes {
		n.Start(t)
	}
	c.WaitReady()
	consul = patientConsul(t, c.Leader())
	need.OK(t, put("after"))
	for key, want := range map[string]bool{"before": true, "poison": false, "after": true} {
		pair, _, err := consul.KV().Get(key, nil)
		expect.That(t, err == nil && (pair != nil) == want, "%s: %v, %v", key, pair, err)
	}
	found, err := second.Lookup("ORDERS", "o1")
	expect.That(t, err == nil && found != nil, "the instance: %+v, %v", found, err)
	v, code := verify(t, c.Nodes[0], 10*comparedWithin)
	expect.That(t, code == 0 && v.Verdict == "equal" && len(v.Nodes) == 3, "exit code %d, %+v, want three nodes that are equal", code, v)
}

// comparedWithin is when replicas that differ must have been named: nodes compare them once a minute.
const comparedWithin = 2 * time.Minute

// verify runs rollcall verify, and returns the verdict with the exit code.
func verify(t *testing.T, n *Node, wait time.Duration) (v own.Verification, code int) {
	t.Helper()
	out, err := exec.Command(Binary(t), "verify", "--addr", n.URL(), "--wait", wait.String(), "-o", "json").Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	need.OKf(t, json.Unmarshal(out, &v), "verify printed %q (%v)", out, err)
	return v, code
}
