package consensus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
)

// moveLeadership has another node than the present leader lead, and returns which.
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
		var hasRead [3]atomic.Bool // before that no leadership may move
		returned := make(chan int, len(c.nodes))
		for i, n := range c.nodes {
			go func() {
				n.WhileLeading(ctx, func(ctx context.Context, _ registry.Epoch) {
					expect.That(t, running[i].Add(1) <= 1, "%s: called again before it returned", n.cfg.Node)
					if _, err := n.View(ctx, registry.Linearizable); err != nil && ctx.Err() == nil {
						t.Errorf("%s: a read of the established leader: %v", n.cfg.Node, err)
					}
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
		got := <-returned
		expect.That(t, got == stopped, "it ended on node %d, want the one that was stopped, %d", got+1, stopped+1)
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
