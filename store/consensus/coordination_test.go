package consensus

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

var _ kv.Service = (*Coordination)(nil)

// sessionID is the nth session of a test.
func sessionID(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n) }

// coordinate performs one operation and fails the test unless it is tried.
func (n *testNode) coordinate(t *testing.T, op kv.Op) kv.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	res, err := n.Coordination().Apply(ctx, op)
	need.That(t, err == nil && len(res) == 1 && res[0].Refusal == "", "%s: apply %T: %+v, %v", n.cfg.Node, op, res, err)
	return res[0]
}

func (n *testNode) createSession(t *testing.T, id string, ttl, delay time.Duration) {
	t.Helper()
	n.coordinate(t, kv.CreateSession{ID: id, TTL: ttl.Milliseconds(), TTLText: ttl.String(), LockDelay: delay.Nanoseconds()})
}

func set(key, value string) kv.KeyOp {
	return kv.KeyOp{Verb: kv.Set, Key: key, Value: []byte(value)}
}

func acquire(key, session string) kv.KeyOp {
	return kv.KeyOp{Verb: kv.Acquire, Key: key, Session: session}
}

func TestResultsOfCoordinationComeFromTheLeaderWhole(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		for _, n := range c.nodes { // one of them leads, the others forward
			key := "of-" + n.cfg.Node
			write := set(key, "v")
			done := n.coordinate(t, kv.Txn{Ops: []kv.TxnOp{{Key: &write}, {Key: &kv.KeyOp{Verb: kv.Get, Key: key}}, {Catalog: &registry.CatalogOp{}}}})
			expect.That(t, done.OK && len(done.Pairs) == 2 && len(done.Found) == 1 && done.Found[0].Pairs == 2 && done.Found[0].Node != nil && string(done.Pairs[1].Value) == "v", "%s: transaction: %+v", n.cfg.Node, done)
			failed := n.coordinate(t, kv.Txn{Ops: []kv.TxnOp{{Key: &kv.KeyOp{Verb: kv.CheckNotExists, Key: key}}}})
			expect.That(t, !failed.OK && len(failed.Errors) == 1 && failed.Errors[0].What == fmt.Sprintf("key %q exists", key),
				"%s: transaction that fails: %+v", n.cfg.Node, failed)
			res, err := n.Coordination().Apply(t.Context(), acquire(key, sessionID(99)))
			expect.That(t, err == nil && res[0].Refusal != "", "%s: acquire for a session that there is not: %+v, %v", n.cfg.Node, res, err)
		}
	})
}

func TestWithoutBatchingEachOperationOfCoordinationHasAnEntry(t *testing.T) {
	inCluster(t, 3, func(cfg *store.Config) { cfg.Test.NoBatching = true }, func(t *testing.T, c *testCluster) {
		leader := c.nodes[c.leader()]
		leader.createSession(t, sessionID(1), time.Hour, 0)
		before := testutil.ToFloat64(leader.metrics.commit.Entries)
		for i := range 20 {
			c.nodes[i%3].coordinate(t, set("k", fmt.Sprint(i)))
			c.nodes[i%3].coordinate(t, kv.RenewSession{ID: sessionID(1)})
		}
		got := testutil.ToFloat64(leader.metrics.commit.Entries) - before
		expect.That(t, got >= 40, "%v entries for 40 operations", got)
	})
}

func TestRaftAddressesAreThoseOfTheVoters(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		at := c.leader()
		for _, n := range c.nodes {
			eventually(t, n.cfg.Node+" knows the leader", func() bool {
				leader, _ := n.Coordination().RaftAddresses()
				return leader == c.nodes[at].cfg.ClusterAddr
			})
			_, all := n.Coordination().RaftAddresses()
			want := []string{c.nodes[0].cfg.ClusterAddr, c.nodes[1].cfg.ClusterAddr, c.nodes[2].cfg.ClusterAddr}
			slices.Sort(want)
			expect.Slice(t, all, want, "%s: voters at", n.cfg.Node)
		}
	})
}

func TestRestoreWakesTheWatchersOfKeys(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		n := c.nodes[0]
		n.coordinate(t, set("other", "v"))
		wait := n.Coordination().Watch(kv.Topic{Kind: kv.KeyTopic, Name: "k"})
		defer wait.Leave()
		var saved bytes.Buffer
		need.Got(n.machine.Snapshot().WriteTo(&saved))(t)
		need.OK(t, (&stateMachine{s: n.Raft}).Restore(io.NopCloser(&saved)))
		select {
		case <-wait.Woken():
		case <-time.After(limit):
			t.Fatal("not woken")
		}
	})
}

func TestGaugesCountSessionsKeysLocksAndWatchers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		c := startCluster(t, 1, func(cfg *store.Config) { cfg.Metrics = metrics })
		n := c.nodes[0]
		n.createSession(t, sessionID(1), time.Hour, 0)
		n.coordinate(t, set("k", "v"))
		n.coordinate(t, kv.AcquirePermit{Kind: kv.Semaphore, Name: "s", Session: sessionID(1), Limit: 3})
		defer n.Coordination().Watch(kv.Topic{Kind: kv.KeyTopic, Name: "k"}).Leave()
		want := `
# HELP rollcall_coordination_keys Keys in this node's state.
# TYPE rollcall_coordination_keys gauge
rollcall_coordination_keys 1
# HELP rollcall_coordination_permits Locks and semaphores, by kind and by what there is of each: themselves, holders and who waits for one.
# TYPE rollcall_coordination_permits gauge
rollcall_coordination_permits{kind="lock",of="all"} 0
rollcall_coordination_permits{kind="lock",of="holders"} 0
rollcall_coordination_permits{kind="lock",of="queue"} 0
rollcall_coordination_permits{kind="semaphore",of="all"} 1
rollcall_coordination_permits{kind="semaphore",of="holders"} 1
rollcall_coordination_permits{kind="semaphore",of="queue"} 0
# HELP rollcall_coordination_sessions Sessions in this node's state.
# TYPE rollcall_coordination_sessions gauge
rollcall_coordination_sessions 1
# HELP rollcall_coordination_watchers Reads of this node that wait for a change of a key, a session or a lock.
# TYPE rollcall_coordination_watchers gauge
rollcall_coordination_watchers 1
`
		if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "rollcall_coordination_keys", "rollcall_coordination_permits",
			"rollcall_coordination_sessions", "rollcall_coordination_watchers"); err != nil {
			t.Error(err)
		}
	})
}
