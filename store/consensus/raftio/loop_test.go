package raftio

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/store"
)

func TestLoopWatchEndsALeaderWhoseMainLoopStands(t *testing.T) {
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
				w := &LoopWatch{
					Loop:  rpcs,
					Leads: func() bool { return tt.leads },
					Disk: func() uint64 {
						if tt.busy {
							return uint64(time.Since(began) / (4 * time.Second))
						}
						return 0
					},
					Applied: func() uint64 { return 0 },
					Fail:    func(err error) { reason = err },
				}
				go answerQuestions(ctx, rpcs, 10, tt.stands)
				go w.Run(ctx)
				time.Sleep(time.Minute)
				cancel()
				synctest.Wait()
				expect.Equal(t, errors.Is(reason, errLoopStands), tt.givesUp, "the node gives up:")
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

// watchedDisk is a disk in a bubble, and how long it takes until a watchdog finds that it hangs.
func watchedDisk(t *testing.T, delay time.Duration, work func(*Disk) error, pause func(looks int) time.Duration) (hangs string, after time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := diskIn(t, t.TempDir(), store.LogBolt)
		defer d.Close()
		d.slow.Set(delay)
		worked := make(chan error, 1)
		began := time.Now()
		go func() { worked <- work(d) }()
		synctest.Wait()
		dog := watchdog[diskCall]{limit: hungDisk, last: began}
		for looks := 0; hangs == "" && len(worked) == 0; looks++ {
			time.Sleep(watchInterval + pause(looks))
			synctest.Wait()
			if call, found := dog.overdue(time.Now(), d.running()); found {
				hangs, after = call.name, time.Since(began)
			}
		}
		d.slow.Set(0)
		expect.OK(t, <-worked)
	})
	return hangs, after
}

func TestWatchdogCountsLooksAndNotTheTimeThatPassed(t *testing.T) {
	one := func(d *Disk) error { return d.StoreLog(&raft.Log{Index: 1, Term: 1}) }
	several := func(d *Disk) error {
		for i := range uint64(4) {
			if err := d.StoreLog(&raft.Log{Index: i + 1, Term: 1}); err != nil {
				return err
			}
		}
		return nil
	}
	never := func(int) time.Duration { return 0 }
	at := func(look int, by time.Duration) func(int) time.Duration {
		return func(looks int) time.Duration {
			if looks == look {
				return by
			}
			return 0
		}
	}
	const name = "append to the log"
	tests := []struct {
		name   string
		delay  time.Duration
		work   func(*Disk) error
		pause  func(looks int) time.Duration // by which so many looks later the next one is late
		hangs  string
		within time.Duration
	}{
		{"a disk that hangs", time.Minute, one, never, name, hungDisk + 2*watchInterval},
		{"a slow disk", 4 * time.Second, one, never, "", 0},
		{"a slow disk that makes progress", 2 * time.Second, several, never, "", 0},
		{"a pause of the process in a call", 8 * time.Second, one, at(1, 7*time.Second), "", 0},
		{"a pause of the process late in a slow call", 11 * time.Second, one, at(15, 7*time.Second), "", 0},
		{"a disk that hangs on after a pause", time.Minute, one, at(3, 7*time.Second), name, 14 * time.Second},
		{"a disk that hangs while every other look is late", time.Minute, one, func(looks int) time.Duration { return time.Duration(looks%2) * 600 * time.Millisecond }, name, 25 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hangs, after := watchedDisk(t, tt.delay, tt.work, tt.pause)
			expect.That(t, hangs == tt.hangs && after <= tt.within, "after %v %q hangs, want %q within %v", after, hangs, tt.hangs, tt.within)
		})
	}
}

// A follower takes a snapshot in the main loop, for as long as that comes.
func TestLoopIsAliveWhileASnapshotComes(t *testing.T) {
	for name, comes := range map[string]bool{"a snapshot that comes": true, "a snapshot of which nothing more comes": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				w := &LoopWatch{Loop: make(chan raft.RPC), Received: func() uint64 {
					if !comes {
						return 7
					}
					return uint64(time.Since(began) / time.Second)
				}}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				expect.Equal(t, w.Alive(ctx), comes, "alive")
			})
		})
	}
}
