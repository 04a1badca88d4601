package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// comparedWithin is when replicas that differ must have been named: nodes compare them once a minute.
const comparedWithin = 2 * time.Minute

// verify runs rollcall verify, and returns the verdict with the exit code.
func verify(t *testing.T, n *Node, wait time.Duration) (v api.Verification, code int) {
	t.Helper()
	out, err := exec.Command(Binary(t), "verify", "--addr", n.URL(), "--wait", wait.String(), "-o", "json").Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	need.OKf(t, json.Unmarshal(out, &v), "verify printed %q (%v)", out, err)
	return v, code
}

func TestReplicaThatWasFalsifiedInOneByteIsNamed(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, Config{})
	victim := c.Nodes[1]
	victim.within = []string{"sh", "-c", fmt.Sprintf("ROLLCALL_PLANTED=falsify:%s:falsify-me exec %s \"$@\"", victim.Name, plantedProgram(t))}
	c.Start()
	v, code := verify(t, c.Nodes[0], 10*comparedWithin)
	need.That(t, code == 0 && v.Verdict == "equal" && len(v.Nodes) == 3, "before: exit code %d, %+v, want three nodes that are equal", code, v)

	response := untilNotRefused(func() Response {
		return c.Nodes[0].Register(Instance{App: "orders", ID: "o1", Duration: 3600, Metadata: map[string]string{"k": "falsify-me"}})
	})
	need.That(t, response.Status == 204, "register: %s", response)
	began := time.Now()
	Eventually(t, 10*comparedWithin, "verify names the replica", func() error {
		v, code = verify(t, c.Nodes[2], 0)
		return unless(v.Verdict == "differ", "%+v", v)
	})
	expect.That(t, code == 1, "verify that finds a difference ends with %d, want 1", code)
	for _, n := range v.Nodes {
		want := ""
		if n.ID == victim.Name {
			want = "applications"
		}
		expect.Equal(t, strings.Join(n.Differs, ","), want, n.ID+" differs in")
	}
	leader := c.Leader()
	Eventually(t, 10*comparedWithin, "the log names it", func() error {
		return unless(strings.Contains(leader.Output(t), "replicas differ") && strings.Contains(leader.Output(t), victim.Name+": applications"), "not yet")
	})
	expect.Equal(t, metric(t, leader, fmt.Sprintf("rollcall_replicas_differ{node=%q}", victim.Name)), 1, "the metric of the victim is")
	expect.Equal(t, metric(t, leader, fmt.Sprintf("rollcall_replicas_differ{node=%q}", c.Nodes[0].Name)), 0, "the metric of another one is")
	t.Logf("verify, log and metric have named it after %v", time.Since(began))
}

func TestVerifyThatCannotCompareANodeIsNoPass(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	away := c.Nodes[2]
	away.Signal(t, syscall.SIGKILL)
	away.ExitCode(t, ReadyLimit)
	c.Leader(c.Nodes[:2]...)
	v, code := verify(t, c.Nodes[0], 0)
	expect.That(t, code == 1 && v.Verdict == "undecided" && len(v.Nodes) == 3 && v.Nodes[2].Sentence == "It could not be asked.", "with a node away: exit code %d, %+v", code, v)
	away.Start(t)
	v, code = verify(t, c.Nodes[0], 10*comparedWithin)
	expect.That(t, code == 0 && v.Verdict == "equal", "with the node back: exit code %d, %+v, want that it waits and finds no difference", code, v)
}
