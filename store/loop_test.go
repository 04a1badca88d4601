package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestALeaderWhoseMainLoopStandsGivesUp(t *testing.T) {
	forever := time.Hour
	tests := []struct {
		name    string
		leads   bool
		stands  time.Duration // the loop, after its first answers
		busy    bool          // the disk makes progress meanwhile
		givesUp bool
	}{
		{name: "a loop that turns", leads: true},
		{name: "a loop that stands", leads: true, stands: forever, givesUp: true},
		{name: "a loop that stands for a while", leads: true, stands: hungLoop / 2},
		{name: "a loop that is busy with a slow disk", leads: true, stands: forever, busy: true},
		{name: "the loop of a follower, which restores a snapshot", stands: forever},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				rpcs := make(chan raft.RPC)
				began := time.Now()
				var reason error
				w := &loopWatch{
					rpcs:  rpcs,
					leads: func() bool { return tt.leads },
					steps: func() (s loopSteps) {
						if tt.busy {
							s.disk = uint64(time.Since(began) / (4 * time.Second))
						}
						return s
					},
					fail: func(err error) { reason = err },
				}
				go answerQuestions(ctx, rpcs, 10, tt.stands)
				go w.run(ctx)
				time.Sleep(time.Minute)
				cancel()
				synctest.Wait()
				got := errors.Is(reason, errLoopStands)
				expect.That(t, got == tt.givesUp, "the node gives up: %v (%v), want %v", got, reason, tt.givesUp)
			})
		})
	}
}

// answerQuestions is a main loop that stands still after so many answers, for some time.
func answerQuestions(ctx context.Context, rpcs <-chan raft.RPC, answers int, stands time.Duration) {
	for n := 0; ; n++ {
		if n == answers {
			select {
			case <-time.After(stands):
			case <-ctx.Done():
				return
			}
		}
		select {
		case rpc := <-rpcs:
			rpc.Respond(nil, errors.New("RPC does not have a header"))
		case <-ctx.Done():
			return
		}
	}
}

func TestTheMainLoopAnswersLeadingOrNot(t *testing.T) {
	c := startCluster(t, 3, nil)
	for _, n := range c.nodes {
		before := n.loop.turns.Load()
		eventually(t, "the main loop of "+n.cfg.Node+" answers", func() bool { return n.loop.turns.Load() > before+3 })
	}
}
