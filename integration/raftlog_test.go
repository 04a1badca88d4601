package integration

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// mixedLogs has the log of two of three nodes in segments.
func mixedLogs(node string) map[string]string {
	return map[string]string{"raft.log": map[bool]string{false: "wal", true: "bolt"}[node == "n3"]}
}

// convertLog runs rollcall recover --convert-log on a node's data directory.
func convertLog(t *testing.T, n *Node, to string) (string, error) {
	t.Helper()
	out, err := exec.Command(Binary(t), "recover", "--data-dir", n.Dir, "--convert-log", to).CombinedOutput()
	return string(out), err
}

// TestLogsAreConvertedNodeByNode while the cluster is written to, and back.
func TestLogsAreConvertedNodeByNode(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{Settings: map[string]string{"raft.log": "bolt"}})
	l := startLoad(t, 10, 20, 4, c.Nodes)
	n := c.Nodes[0]
	said, err := convertLog(t, n, "wal")
	expect.That(t, err != nil && strings.Contains(said, "another process has it open"), "the log of a node that runs: %v, %s", err, said)
	for i, to := range []string{"wal", "wal", "wal", "bolt"} {
		n := c.Nodes[i%3]
		l.use(c.Others(n))
		n.Kill()
		n.Settings["raft.log"] = to
		mustRefuseToStart(t, n, `raft.log is "`+to+`"`, n.Dir, "rollcall recover --data-dir", "--convert-log "+to)
		if to == "bolt" {
			tearSegment(t, n)
		}
		said, err := convertLog(t, n, to)
		need.That(t, err == nil && strings.Contains(said, "the log is in "+to+" now"), "%s to %s: %v, %s", n.Name, to, err, said)
		n.Start(t)
		n.WaitReady(t)
		l.awaitProgress(t)
		l.use(c.Nodes)
	}
	l.stop()
	c.WaitReady()
	l.check(t, c.Nodes)
}
