package integration

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestRecoverCommandSaysWhatItHasMade recovers a cluster of one node. TestClusterGoesOnFromOneOfThreeDirectories of
// cmd/internal/sim has what becomes of a larger one.
func TestRecoverCommandSaysWhatItHasMade(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{Nodes: 1})
	n := c.Nodes[0]
	need.That(t, n.putTrue(t, "/v1/kv/kept", "x"), "the key was not written")
	recovers := func(more ...string) (string, error) {
		args := append([]string{"recover", "--data-dir", n.Dir, "--members", n.Name + "=" + n.Cluster}, more...)
		out, err := exec.Command(Binary(t), args...).CombinedOutput()
		return string(out), err
	}
	said, err := recovers()
	expect.That(t, err != nil && strings.Contains(said, "another process has it open"), "recover of a directory in use: %v, %s", err, said)
	n.Kill()
	said, err = recovers()
	need.That(t, err == nil && strings.Contains(said, "is lost; the index goes on from") && strings.Contains(said, "now start "+n.Name), "recover: %v, %s", err, said)
	var done struct {
		Keys   int
		Others []string
	}
	said, err = recovers("-o", "json")
	need.OKf(t, err, "%s", said)
	need.OK(t, json.Unmarshal([]byte(said), &done))
	expect.That(t, done.Keys == 1 && len(done.Others) == 0, "recover says %s", said)
	n.Start(t)
	n.WaitReady(t)
	held, _, err := n.keys("kept")
	expect.That(t, err == nil && len(held) == 1, "after the recovery there is %+v, %v", held, err)
}
