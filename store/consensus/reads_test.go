package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/wait"
)

// What fails at once would else be asked for as often as the processor allows, of the leader too.
func TestANodeThatCannotBecomeReadyTriesAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		const most = 2 * int(time.Second/retryPause)
		tries := 0
		s := &Raft{closing: ctx, peers: port.NewPeers(nil, nil)}
		s.reads = newRounds(func(context.Context) (uint64, error) {
			if tries++; tries > most {
				stop() // time stands still in a bubble that is busy
			}
			return 0, errors.New("refused")
		})
		var rounds sync.WaitGroup
		rounds.Go(func() { s.reads.run(ctx) })
		s.becomeReady(ctx)
		rounds.Wait() // one may have begun when the time was up
		expect.That(t, tries >= 2 && tries <= most, "it tried %d times in a second, want at most %d", tries, most)
	})
}

func TestOnlyVotersCountInTheQuorumOfARead(t *testing.T) {
	voter := func(id raft.ServerID) raft.Server { return raft.Server{ID: id} }
	learner := raft.Server{ID: "learner", Suffrage: raft.Nonvoter}
	tests := []struct {
		name    string
		members []raft.Server
		others  int
		missing int // of them, to make a majority
	}{
		{"the only one", []raft.Server{voter("self")}, 0, 0},
		{"three", []raft.Server{voter("a"), voter("self"), voter("b")}, 2, 1},
		{"four", []raft.Server{voter("a"), voter("self"), voter("b"), voter("c")}, 3, 2},
		{"three and a learner", []raft.Server{voter("a"), voter("self"), learner, voter("b")}, 2, 1},
		// B and a leader that the others have removed are no majority: C and D may have elected another leader.
		{"a leader that was removed from four", []raft.Server{voter("b"), voter("c"), voter("d")}, 3, 2},
		{"a leader that was removed from two", []raft.Server{voter("b")}, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			others, missing := readQuorum(tt.members, "self")
			expect.That(t, len(others) == tt.others && missing == tt.missing,
				"asks %v, %d of them must agree; want %d to ask and %d", others, missing, tt.others, tt.missing)
		})
	}
}

func TestTheAnswerOfAnotherNodeAtAVotersAddressDoesNotCount(t *testing.T) {
	c := startCluster(t, 3, nil)
	asking := c.nodes[c.leader()]
	members := need.Got(asking.members())(t)
	for i, m := range members {
		expect.OKf(t, expect.Err(asking.termOf(m)), "the term of %s", m.ID)
		swapped := raft.Server{ID: m.ID, Address: members[(i+1)%len(members)].Address}
		var other *errOther
		_, err := asking.termOf(swapped)
		expect.That(t, errors.As(err, &other), "the term of %s asked at %s's address: %v, want errOther", m.ID, members[(i+1)%3].ID, err)
		if _, err := asking.stateOf(context.Background(), swapped); !errors.As(err, &other) {
			t.Errorf("the state of %s asked at %s's address: %v, want errOther", m.ID, members[(i+1)%3].ID, err)
		}
	}
}

func TestRoundsShareAnAttemptThatBeginsAfterTheyJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int64
		r := newRounds(func(context.Context) (int64, error) {
			n := attempts.Add(1)
			time.Sleep(time.Second)
			return n, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { r.run(ctx) })
		join := func(want int64) {
			all.Go(func() {
				got, err := r.join(ctx)
				expect.That(t, got == want && err == nil, "got attempt %d, error %v; want attempt %d", got, err, want)
			})
		}
		join(1)
		synctest.Wait() // the first attempt is running now
		for range 1000 {
			join(2)
		}
		time.Sleep(3 * time.Second)
		if got := attempts.Load(); got != 2 {
			t.Errorf("%d attempts served everybody, want 2", got)
		}
		cancel()
		all.Wait()
	})
}

func TestRoundsJoinEndsWithItsContext(t *testing.T) {
	r := newRounds(func(context.Context) (int, error) { return 0, nil })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.join(ctx)
	expect.That(t, errors.Is(err, context.Canceled), "got %v, want the context's error", err)
}

func TestNobodyWaitsForARoundThatIsNeverMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, stop := context.WithCancel(t.Context())
		r := newRounds(func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		go r.run(running)
		joined := make(chan error, 2)
		for range 2 { // one in the round that is being made, one in the next
			go func() {
				_, err := r.join(t.Context())
				joined <- err
			}()
			synctest.Wait()
		}
		stop()
		synctest.Wait()
		_, err := r.join(t.Context())
		for _, err := range []error{err, <-joined, <-joined} {
			expect.That(t, errors.Is(err, context.Canceled), "got %v, want that it was canceled", err)
		}
	})
}

// copyOf is a batch of another node that registers an instance.
func copyOf(seq uint64, bound fsm.Bound) []byte {
	id := fsm.BatchID{Node: "other", Boot: 1, Seq: seq, Bound: bound}
	return fsm.AppendBatch(nil, id, []fsm.Item{{Op: registry.Register{Instance: instance("LATE", fmt.Sprintf("i%d", seq), 600)}}})
}

func TestALeaderTakesNoBatchAfterItsTime(t *testing.T) {
	c := startCluster(t, 3, nil)
	at := c.nodes[c.leader()]
	l := at.lead.Load()
	earlier := l.Epoch.Index
	for _, row := range []struct {
		name  string
		bound fsm.Bound
	}{
		{"its time is over", l.bound(time.Now().Add(-time.Millisecond))},
		{"for another leadership", fsm.Bound{Leadership: earlier + 1, Until: 1 << 40}},
	} {
		var reply CommitReply
		err := (&nodeCalls{at.Raft}).Commit(copyOf(1, row.bound), &reply)
		expect.That(t, err == nil && reply.Answer == answerNotLeader, "%s: answer %d, %v, want that it is not taken", row.name, reply.Answer, err)
		// It may have been in time when it came, and have waited here.
		if _, err := at.committer.propose(t.Context(), copyOf(1, row.bound), row.bound); !errors.Is(err, errLate) || !errors.Is(err, port.ErrNotSent) {
			t.Errorf("%s, in the queue: %v, want that it is late and was not sent", row.name, err)
		}
		// It may have been in time when it was proposed.
		if res, err := at.commitHere(t.Context(), copyOf(1, row.bound)); !errors.Is(err, errLate) {
			t.Errorf("%s, in the log: %+v, %v, want that it is late", row.name, res, err)
		}
	}
	in := l.bound(time.Now().Add(time.Minute))
	expect.OKf(t, expect.Err(at.committer.propose(t.Context(), copyOf(1, in), in)), "in time")
	next := c.nodes[c.moveLeadership()]
	if _, err := next.committer.propose(t.Context(), copyOf(2, in), in); !errors.Is(err, errLate) {
		t.Errorf("of an earlier leadership: %v, want that it is late", err)
	}
	v := next.read(t, registry.Linearizable)
	if _, ok := v.Lease(registry.NewKey("LATE", "i1")); !ok || v.Len() != 1 {
		t.Errorf("%d instances, want the one that came in time", v.Len())
	}
}

func TestAFollowersWritesFollowTheLeaderThroughItsLeaderships(t *testing.T) {
	c := startCluster(t, 3, nil)
	for i := range 4 {
		leader := c.leader()
		for j, n := range c.nodes {
			expect.Equal(t, n.apply(t, registry.Register{Instance: instance("A", fmt.Sprintf("i%d-%d", i, j), 600)}).Outcome, registry.Done,
				"leader n%d, write at %s:", leader+1, n.cfg.Node)
		}
		c.moveLeadership()
	}
}

func TestAFollowerAsksAgainHowLongALeadershipHasLasted(t *testing.T) {
	c := startCluster(t, 3, nil)
	follower := c.nodes[(c.leader()+1)%3]
	follower.apply(t, registry.Register{Instance: instance("A", "i", 600)})
	leader := follower.leader.Load()
	old := &terms{leader: leader, seen: fsm.Bound{Leadership: 1}, at: time.Now().Add(-termsHold)}
	follower.terms.Store(old)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	got, err := follower.termsOf(ctx, leader, leader.address)
	expect.That(t, err == nil && got != old && time.Since(got.at) < termsHold, "got %+v, %v, want what the leader says now", got, err)
}

func TestAWriteThatComesAfterAPauseWaitsUntilItsClientCanBeSeenToHaveGone(t *testing.T) {
	now := time.Now()
	var p pulse
	expect.Equal(t, p.grace(now), 0, "before the first beat:")
	for range 100 {
		p.beat(now)
		now = now.Add(20 * time.Millisecond)
	}
	expect.Equal(t, p.grace(now), 0, "without a pause:")
	now = now.Add(time.Minute)
	expect.Equal(t, p.grace(now), wakeGrace, "the first after a pause:")
	p.beat(now)
	got := p.grace(now.Add(wakeGrace / 4))
	expect.That(t, got == wakeGrace*3/4, "after the beat: %v, want what is left, %v", got, wakeGrace*3/4)
	expect.Equal(t, p.grace(now.Add(wakeGrace)), 0, "when the time is over:")
}

// TestAWallClockThatIsSetBackKeepsNoWriteWaiting: the time of the last pause is then in its future.
func TestAWallClockThatIsSetBackKeepsNoWriteWaiting(t *testing.T) {
	now := time.Now()
	var p pulse
	p.beat(now)
	now = now.Add(time.Minute)
	p.beat(now) // after a pause
	back := setBack(now.Add(2*wakeGrace), time.Hour)
	step := back.Round(0).Sub(now.Round(0))
	need.That(t, step <= 0 && back.Sub(now) == 2*wakeGrace, "the clock was not set back: %v", step)
	expect.Equal(t, p.grace(back), 0, "a write waits for")
}

// setBack is a reading of a clock whose wall time was set back by whole seconds, while its monotonic time goes
// on. Package time has no other way to make one: the seconds are above the lowest 30 bits of its first field.
func setBack(t time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) -= uint64(by/time.Second) << 30
	return t
}

// acked is what was acknowledged when.
type acked struct {
	mu   sync.Mutex
	when map[string]time.Time
}

// missing returns a registration that was acknowledged before a time and is not in a view; "": none.
func (a *acked) missing(v *registry.View, before time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, at := range a.when {
		if _, there := v.Lease(registry.NewKey("A", id)); !there && at.Before(before) {
			return id
		}
	}
	return ""
}

func TestTheAgeOfAFollowerWithASlowDiskIsThatOfItsState(t *testing.T) {
	c := startCluster(t, 3, nil)
	leader := c.nodes[c.leader()]
	slow := c.nodes[(c.leader()+1)%3]
	slow.SetSyncDelay(time.Second)

	all := acked{when: map[string]time.Time{}}
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			id := fmt.Sprintf("i%d", i)
			if _, err := leader.Apply(ctx, registry.FromClient, registry.Register{Instance: instance("A", id, 600)}); err == nil {
				all.mu.Lock()
				all.when[id] = time.Now()
				all.mu.Unlock()
			}
			wait.Pause(ctx, nil, 10*time.Millisecond)
		}
	})
	defer writer.Wait()
	defer stop()
	var oldest time.Duration
	eventually(t, "the disk is late by several writes", func() bool {
		age, asked := slow.Health().Age, time.Now()
		v := slow.read(t, registry.Stale)
		if id := all.missing(v, asked.Add(-age)); id != "" {
			t.Fatalf("age %v, but %s is missing, which was acknowledged %v ago", age, id, time.Since(all.when[id]))
		}
		oldest = max(oldest, age)
		return oldest > 1500*time.Millisecond
	})
	stop()
	writer.Wait()
	slow.SetSyncDelay(0)
	eventually(t, "it is fresh again", func() bool { return slow.Health().Age < freshInterval*3 })
}

func TestTheAgeCountsFromTheNewestProofThatIsApplied(t *testing.T) {
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var f freshness
	if got := f.newest(100); !got.IsZero() {
		t.Errorf("without a proof: %v, want none", got)
	}
	f.addProof(at(1), 10, 9)
	f.addProof(at(2), 20, 9)
	f.addProof(at(3), 30, 9)
	for _, row := range []struct {
		applied uint64
		want    time.Time
	}{{9, time.Time{}}, {10, at(1)}, {19, at(1)}, {30, at(3)}, {30, at(3)}} {
		got := f.newest(row.applied)
		expect.That(t, got.Equal(row.want), "applied %d: since %v, want %v", row.applied, got, row.want)
	}
	f.addProof(at(2), 25, 30) // answered late, by an earlier leader
	if got := f.newest(30); !got.Equal(at(3)) {
		t.Errorf("an older proof: since %v, want %v", got, at(3))
	}
	for i := range 10 * maxPending {
		f.addProof(at(10+i), uint64(1000+i), 30)
	}
	if got, want := f.newest(1_000_000), at(10+maxPending-1); !got.Equal(want) || len(f.pending) != 0 {
		t.Errorf("after more than are remembered: since %v, want %v", got, want)
	}
}

func TestTimeInWhichAMachineSleptCounts(t *testing.T) {
	now := time.Now()
	expect.Equal(t, elapsed(now.Add(-time.Second), now), time.Second, "both clocks say one second:")
	// A time without its monotonic reading stands for a wall clock that says something else.
	expect.Equal(t, elapsed(now.Round(0).Add(-time.Minute), now), time.Minute, "the wall clock says one minute:")
	got := elapsed(now.Round(0).Add(time.Hour), now)
	expect.That(t, got == 0, "the wall clock was set back: %v, want what the other clock says", got)
}

func TestANodeThatHasNotHeardOfTheLogsEndDoesNotCallItsStateFresh(t *testing.T) {
	c := startCluster(t, 3, nil)
	c.nodes[0].apply(t, registry.Register{Instance: instance("A", "i", 600)})
	c.stopAll()
	alone := c.start(c.nodes[0].cfg)
	c.nodes[0] = alone
	asked := time.Now()
	age, newest := alone.Health().Age, time.UnixMilli(alone.read(t, registry.Stale).Stamp().Wall)
	if age < asked.Sub(newest) {
		t.Errorf("age %v, but its newest entry is of %v ago", age, asked.Sub(newest))
	}
}

func TestANodeThatHasAppliedNothingDoesNotCallItsStateFresh(t *testing.T) {
	c := &testCluster{t: t, dir: t.TempDir()}
	t.Cleanup(c.stopAll)
	c.nodes = append(c.nodes, c.open(0, []string{freeAddr(t), freeAddr(t), freeAddr(t)}, 3))
	age := c.nodes[0].Health().Age
	expect.That(t, age > 24*time.Hour, "the age of a state without an entry is %v, want that nobody can tell it", age)
}
