package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
)

func TestSettingsThatDifferAreNamedByTheirKeys(t *testing.T) {
	tests := []struct {
		name   string
		change func(*registry.Settings)
		want   string
	}{
		{"none", func(*registry.Settings) {}, ""},
		{"enabled", func(s *registry.Settings) { s.SelfPreservation = false }, "self-preservation.enabled is true in the cluster and false here"},
		{"threshold", func(s *registry.Settings) { s.Threshold = 500_000 }, "self-preservation.renewal-percent-threshold is 0.85 in the cluster and 0.5 here"},
		{"bound", func(s *registry.Settings) { s.Bound = 0 }, "self-preservation.max-duration is 1h0m0s in the cluster and 0s here"},
		{"a cut", func(s *registry.Settings) { s.OnCut = "dc2=expire" }, "replication.on-cut is keep in the cluster and dc2=expire here"},
		{"two", func(s *registry.Settings) { s.Expectation, s.DoubledLease = true, true },
			"eureka-compat.expectation is false in the cluster and true here; eureka-compat.doubled-lease is false in the cluster and true here"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			own := registry.DefaultSettings()
			tt.change(&own)
			expect.Equal(t, differences(registry.DefaultSettings(), own), tt.want, "got")
		})
	}
}

func TestSettingsThatDifferAreLoggedOncePerChange(t *testing.T) {
	var log bytes.Buffer
	state := registry.DefaultSettings()
	w := settingsWatch{own: state, state: func() registry.Settings { return state }, log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, population := range []uint32{10, 10, 3, 3, 3, 10, 3} {
		state.Population = population
		w.compare()
	}
	warned, calmed := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "level=INFO")
	expect.That(t, warned == 2 && calmed == 1, "%d warnings and %d all-clears, want 2 and 1:\n%s", warned, calmed, log.String())
}

// sharedLog is a log that several nodes write to.
type sharedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *sharedLog) count(words ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.b.String()) {
		if containsAll(line, words) {
			n++
		}
	}
	return n
}

func containsAll(line string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(line, w) {
			return false
		}
	}
	return true
}

func TestSettingsOfTheLeaderHoldAndTheOthersSaySo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var log sharedLog
		c := startCluster(t, 3, func(cfg *store.Config) {
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil)).With("on", cfg.Node)
			if cfg.Node == "n1" {
				cfg.Settings = registry.DefaultSettings()
				cfg.Settings.Population = 3
			}
		})
		warnings := func(node string) int {
			return log.count("level=WARN", "on="+node+" ", "self-preservation.min-instances is")
		}
		leadBy := func(i int) {
			eventually(t, c.nodes[i].cfg.Node+" leads", func() bool {
				if at := c.leader(); at != i {
					to := c.nodes[i]
					future := c.nodes[at].raft.LeadershipTransferToServer(raft.ServerID(to.serverID()), raft.ServerAddress(to.net.Addr().String()))
					if err := raftio.Wait(context.Background(), future, limit); err != nil {
						t.Logf("transfer: %v", err)
					}
				}
				return c.nodes[i].Health().Leads
			})
		}
		leadBy(0)
		for _, n := range c.nodes {
			eventually(t, n.cfg.Node+" has the settings of n1", func() bool {
				return n.read(t, registry.Stale).Settings().Population == 3
			})
		}
		eventually(t, "the others say so", func() bool { return warnings("n2") > 0 && warnings("n3") > 0 })
		before := [...]int{warnings("n1"), warnings("n2"), warnings("n3")}
		leadBy(1)
		eventually(t, "n1 says so", func() bool { return warnings("n1") == before[0]+1 })
		expect.Equal(t, c.nodes[0].read(t, registry.Linearizable).Settings(), registry.DefaultSettings(), "settings under n2:")
		expect.That(t, warnings("n2") == before[1] && warnings("n3") == before[2], "n2 and n3 warned of their own settings:\n%s", log.b.String())
	})
}

var _ kv.Service = (*Coordination)(nil)

// sessionID returns the nth session id of a test.
func sessionID(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n) }

// coordinate performs one operation, and fails the test if it returns an error.
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

func TestRaftAddressesMatchTheVoters(t *testing.T) {
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
# HELP rollcall_coordination_permits Locks and semaphores, by kind, and of each kind: how many there are, how many holders, how many waiters.
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
# HELP rollcall_coordination_watchers Reads on this node that wait for a key, a session or a lock to change.
# TYPE rollcall_coordination_watchers gauge
rollcall_coordination_watchers 1
`
		if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "rollcall_coordination_keys", "rollcall_coordination_permits",
			"rollcall_coordination_sessions", "rollcall_coordination_watchers"); err != nil {
			t.Error(err)
		}
	})
}

// moveLeadership moves leadership to another node, and returns that node's position.
func (c *testCluster) moveLeadership() int {
	c.t.Helper()
	from := c.leader()
	to := (from + 1) % len(c.nodes)
	eventually(c.t, "leadership is moved", func() bool {
		if at := c.leader(); at != to {
			n := c.nodes[to]
			future := c.nodes[at].raft.LeadershipTransferToServer(raft.ServerID(n.serverID()), raft.ServerAddress(n.net.Addr().String()))
			if err := raftio.Wait(context.Background(), future, limit); err != nil {
				c.t.Logf("transfer: %v", err)
			}
		}
		return c.nodes[to].Health().Leads
	})
	return to
}

func TestWhileLeadingRunsOnTheLeaderAlone(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		ctx, stop := context.WithCancel(t.Context())
		var running [3]atomic.Int32
		var hasRead [3]atomic.Bool // leadership must not move before that
		returned := make(chan int, len(c.nodes))
		for i, n := range c.nodes {
			go func() {
				n.WhileLeading(ctx, func(ctx context.Context, _ registry.Epoch) {
					expect.That(t, running[i].Add(1) <= 1, "%s: called again before it returned", n.cfg.Node)
					_, err := n.View(ctx, registry.Linearizable)
					expect.That(t, err == nil || ctx.Err() != nil, "%s: a read of the established leader: %v", n.cfg.Node, err)
					hasRead[i].Store(true)
					<-ctx.Done()
					hasRead[i].Store(false)
					running[i].Add(-1)
				})
				returned <- i
			}()
		}
		runsOn := func(at int) func() bool {
			return func() bool {
				for i := range running {
					if (running[i].Load() == 1) != (i == at) || hasRead[i].Load() != (i == at) {
						return false
					}
				}
				return true
			}
		}
		eventually(t, "it runs on the leader", runsOn(c.leader()))
		eventually(t, "it runs on the next leader", runsOn(c.moveLeadership()))
		eventually(t, "it runs on the one after", runsOn(c.moveLeadership()))
		stopped := c.leader()
		expect.OK(t, c.nodes[stopped].halt())
		expect.Equal(t, <-returned, stopped, "counted from 0, it ended on the node that was stopped, on")
		stop()
		<-returned
		<-returned
	})
}

func TestAskLeaderHasTheLeadersReplyOnEveryNode(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, 3, func(cfg *store.Config) {
			name := cfg.Node
			cfg.Reply = func(_ context.Context, question []byte) ([]byte, error) {
				if string(question) == "impossible" {
					return nil, fmt.Errorf("%s cannot", name)
				}
				return fmt.Appendf(nil, "%s heard %s", name, question), nil
			}
		})
		for range 2 {
			eventually(t, "all know the leader", func() bool {
				leader := c.nodes[c.leader()].cfg.Node
				for _, n := range c.nodes {
					if n.Leader() != leader {
						return false
					}
				}
				return true
			})
			leader := c.nodes[c.leader()].cfg.Node
			for _, n := range c.nodes {
				got, err := n.AskLeader(t.Context(), []byte("this"))
				want := leader + " heard this"
				expect.That(t, err == nil && string(got) == want, "%s was told %q (%v), want %q", n.cfg.Node, got, err, want)
				if _, err := n.AskLeader(t.Context(), []byte("impossible")); err == nil || !strings.Contains(err.Error(), leader+" cannot") || errors.Is(err, registry.ErrNoLeader) {
					t.Errorf("%s was told %v, want what the leader said", n.cfg.Node, err)
				}
			}
			c.moveLeadership()
		}
	})
}

func TestAskLeaderEndsWithoutAReply(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, 3, func(cfg *store.Config) {
			cfg.Reply = func(ctx context.Context, _ []byte) ([]byte, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		leader := c.leader()
		asked := c.nodes[(leader+1)%3]
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		expect.ErrorIs(t, expect.Err(asked.AskLeader(ctx, nil)), context.DeadlineExceeded, "the caller gives up: got")
		done := make(chan error, 1)
		go func() { done <- expect.Err(asked.AskLeader(t.Context(), nil)) }()
		expect.OK(t, c.nodes[leader].halt())
		expect.That(t, <-done != nil, "the leader goes: got a reply of no node")
		expect.OK(t, c.nodes[(leader+2)%3].halt())
		eventually(t, "the last one knows no leader", func() bool { return asked.Leader() == "" })
		expect.ErrorIs(t, expect.Err(asked.AskLeader(t.Context(), nil)), registry.ErrNoLeader, "there is no leader: got")
	})
}

func TestAskLeaderHasNoReplyOfALeaderThatCeasesToBeOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		asked := make(chan struct{}, 2)
		c := startCluster(t, 3, func(cfg *store.Config) {
			cfg.Reply = func(ctx context.Context, _ []byte) ([]byte, error) {
				asked <- struct{}{}
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		leader := c.leader()
		done := make(chan error, 2)
		for _, n := range []*testNode{c.nodes[leader], c.nodes[(leader+1)%3]} {
			go func() {
				_, err := n.AskLeader(t.Context(), nil)
				done <- err
			}()
			<-asked
		}
		c.moveLeadership()
		for range cap(done) {
			expect.ErrorIs(t, <-done, registry.ErrNoLeader, "got")
		}
	})
}

func TestAskLeaderSaysThatANodeRepliesToNoQuestions(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		_, err := c.nodes[0].AskLeader(t.Context(), nil)
		expect.That(t, errors.Is(err, errNoReplyHere), "got %v, want that it answers no questions", err)
	})
}
