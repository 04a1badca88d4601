package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// newCall returns a call of one client.
func newCall(op registry.Op) *call {
	item := fsm.Item{Origin: registry.FromClient, Op: op}
	return &call{items: []fsm.Item{item}, size: store.SizeOf(item), arrived: time.Now(), done: make(chan struct{})}
}

// alien returns an operation that no leader can read: its status is unknown, as if it came from another build.
func alien(id string) registry.Op {
	return registry.SetOverride{Key: registry.NewKey("A", id), Status: 99}
}

// leaderWithoutLog has no log: it reports every operation that it can read as done.
type leaderWithoutLog struct {
	address     string
	connections atomic.Int64 // that other nodes have opened
	silent      atomic.Bool  // it replies only when the test ends
}

func leaderWithout(t *testing.T) *leaderWithoutLog {
	t.Helper()
	state := &membership.LeaderState{}
	state.Lead(membership.NewLeadership(nil, t.Context(), time.Now()))
	leader := newCommitter(committerConfig{InFlight: 1, Leadership: state})
	l, ended := &leaderWithoutLog{}, make(chan struct{})
	calls := port.Calls{"Node.Commit": port.Method(func(encoded []byte) CommitReply {
		_, items, err := fsm.ParseBatch(encoded)
		if err != nil {
			return leader.replyUnreadable(err)
		}
		if l.silent.Load() {
			<-ended
		}
		results := fsm.BatchResult{Results: fsm.Results{Registry: make([]registry.Result, len(items))}}
		return CommitReply{Results: fsm.AppendResults(nil, codec.Newest, results)}
	})}
	p := openPortOf(t, "n2.bb")
	t.Cleanup(func() { close(ended) })
	p.ServeNode = func(conn net.Conn, from port.Hello) {
		l.connections.Add(1)
		calls.Serve(conn, from)
	}
	p.Go(p.Serve)
	l.address = p.Addr().String()
	return l
}

func openPortOf(t *testing.T, serverID string) *port.Port {
	t.Helper()
	p := need.Got(port.Listen(nil, "127.0.0.1:0", "", store.TLSFiles{}, slog.New(slog.DiscardHandler)))(t)
	p.Self = func() port.Hello { return port.Hello{Cluster: "c", ServerID: serverID} }
	t.Cleanup(func() {
		p.Close()
		p.Wait()
	})
	return p
}

func newest() byte { return codec.Newest }

// follower returns the committer of a node that follows the leader at an address.
func follower(t *testing.T, leader string) *committer {
	t.Helper()
	state := &membership.LeaderState{Self: "n1.aa", Log: slog.New(slog.DiscardHandler)}
	state.Observe(raft.ServerAddress(leader), "n2.bb")
	nodes := port.NewNodes(openPortOf(t, "n1.aa"), nil)
	t.Cleanup(nodes.Close)
	metrics := newCommitMetrics(prometheus.NewRegistry())
	return newCommitter(committerConfig{
		InFlight: 1, Node: "n1.aa", Leadership: state, Proposer: &proposer{Leadership: state, Metrics: metrics, Level: newest}, Nodes: nodes, Metrics: metrics,
		TermsOf: func(context.Context, *membership.Leader, string) (*membership.Terms, error) {
			return &membership.Terms{}, nil
		},
	})
}

func TestCommitterRefusesOnlyTheCallerOfAnUnreadableOperation(t *testing.T) {
	c := follower(t, leaderWithout(t).address)
	const clients = 60
	for _, planted := range [][]int{{0}, {30}, {clients - 1}, {7, 8, 40}} {
		var calls []*call
		for i := range clients {
			id := fmt.Sprint("i", i)
			if slices.Contains(planted, i) {
				calls = append(calls, newCall(alien(id)))
				continue
			}
			calls = append(calls, newCall(registry.Renew{Key: registry.NewKey("A", id)}))
		}
		c.sendUntilResult(t.Context(), c.reseal(calls))
		for i, k := range calls {
			<-k.done
			switch {
			case slices.Contains(planted, i):
				expect.ErrorIs(t, k.err, registry.ErrUnreadable, "planted %v: the caller of %d got", planted, i)
			case k.err != nil || len(k.results.Registry) != 1 || k.results.Registry[0].Outcome != registry.Done:
				t.Errorf("planted %v: heartbeat %d got %+v, %v, want done", planted, i, k.results, k.err)
			}
		}
	}
	expect.Equal(t, len(c.open), 0, "numbers of batches that are open:")
}

// Under new numbers it could take effect twice.
func TestCommitterDividesNoBatchThatMayHaveTakenEffect(t *testing.T) {
	c := follower(t, leaderWithout(t).address)
	calls := []*call{newCall(alien("i0")), newCall(registry.Renew{Key: registry.NewKey("A", "i1")})}
	b := c.reseal(calls)
	b.sent = time.Now().Add(time.Second/2 - store.ResultWait)
	c.sendUntilResult(context.Background(), b)
	for _, k := range calls {
		<-k.done
		expect.ErrorIs(t, k.err, registry.ErrUnknownOutcome, "got")
	}
}

func TestCommitterHangsUpOnALeaderWhoseTimeForABatchIsOver(t *testing.T) {
	leader := leaderWithout(t)
	c := follower(t, leader.address)
	b := (&batch{}).encode(codec.Newest, fsm.Bound{})
	need.OK(t, expect.Err(c.commitAt(t.Context(), leader.address, callCommit, b)))
	leader.silent.Store(true)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	need.That(t, expect.Err(c.commitAt(ctx, leader.address, callCommit, b)) != nil, "a batch without time has a result")
	leader.silent.Store(false)
	need.OK(t, expect.Err(c.commitAt(t.Context(), leader.address, callCommit, b)))
	expect.Equal(t, leader.connections.Load(), 2, "connections:")
}

// A caller hears of an unknown outcome at the same time however long Raft had no place for its entry, as while the
// leader's disk is slow.
func TestResultsAreWaitedForSinceRaftWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, answer := time.Now(), make(fullRaft)
		p := &proposer{Raft: answer, Metrics: newCommitMetrics(prometheus.NewRegistry())}
		_, err := p.Start(nil, enqueueTimeout).Results(t.Context())
		expect.That(t, err != nil && !errors.Is(err, port.ErrNotSent), "got %v, want an unknown outcome", err)
		expect.Equal(t, time.Since(began), store.ResultWait, "known after")
		close(answer)
	})
}

// fullRaft takes an entry at the last moment, and applies none until it is closed.
type fullRaft chan struct{}

func (r fullRaft) Apply(_ []byte, patience time.Duration) raft.ApplyFuture {
	time.Sleep(patience - time.Millisecond)
	return r
}
func (r fullRaft) Error() error { <-r; return raft.ErrLeadershipLost }
func (fullRaft) Response() any  { return nil }
func (fullRaft) Index() uint64  { return 0 }

// noRaft refuses entries.
type noRaft struct{ raft.ApplyFuture }

func (noRaft) Apply([]byte, time.Duration) raft.ApplyFuture { return noRaft{} }
func (noRaft) Error() error                                 { return raft.ErrNotLeader }

// A batch may have arrived in time, and waited here.
func TestCommitterProposesNoBatchAfterItsTime(t *testing.T) {
	state := &membership.LeaderState{}
	l := membership.NewLeadership(expiry.NewReign(registry.Epoch{Index: 7}, 0, fsm.NewMachine().View()), t.Context(), time.Now())
	state.Lead(l)
	metrics := newCommitMetrics(prometheus.NewRegistry())
	c := newCommitter(committerConfig{InFlight: 1, Leadership: state, Metrics: metrics, Proposer: &proposer{
		Raft: noRaft{}, Stamp: func() registry.Stamp { return registry.Stamp{} }, Level: newest, Leadership: state, Metrics: metrics,
	}})
	for _, row := range []struct {
		name  string
		bound fsm.Bound
		late  bool
	}{
		{"its time is over", l.Bound(time.Now().Add(-time.Second)), true},
		{"for another leadership", fsm.Bound{Leadership: 8, Until: 1 << 40}, true},
		{"in time", l.Bound(time.Now().Add(limit)), false},
	} {
		p := &proposal{bound: row.bound, done: make(chan struct{})}
		_, kept, err := c.launch(nil, []*proposal{p})
		need.OK(t, err)
		late := len(kept) == 0 && errors.Is(p.err, errLate) && errors.Is(p.err, port.ErrNotSent)
		expect.That(t, late == row.late && len(kept) == 1 == !row.late, "%s: %d are proposed (%v), want it late: %v", row.name, len(kept), p.err, row.late)
	}
}

// Right after the level was raised, a node may not have applied that entry. What needs the level waits for it, as
// long as for a leader; what no node writes is refused at once.
func TestOperationOfALevelWaitsUntilThisNodeHasHeardOfIt(t *testing.T) {
	behind, above := fmt.Errorf("%w: behind", registry.ErrNoLeader), &registry.LevelError{Text: "no node writes it"}
	for _, row := range []struct {
		name   string
		learns time.Duration // when this node applies the entry
		err    error         // what Above returns until then
		took   time.Duration
		want   error
	}{
		{"it is behind by 100 ms", 100 * time.Millisecond, behind, 5 * lookAgain, nil},
		{"it learns nothing", time.Hour, behind, store.NoLeaderWait, registry.ErrNoLeader},
		{"no node writes it", time.Hour, above, 0, above},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				c := newCommitter(committerConfig{InFlight: 1, Nodes: &port.Nodes{}, Proposer: &proposer{Level: func() byte {
					if time.Since(start) < row.learns {
						return 0
					}
					return 1
				}}, Above: func(context.Context, byte) error { return row.err }})
				err := c.admit(t.Context(), []fsm.Item{{KV: kv.KeyOp{Key: "k"}}}, start)
				expect.That(t, errors.Is(err, row.want) && (row.want != nil || err == nil), "got %v, want %v", err, row.want)
				expect.Equal(t, time.Since(start), row.took, "the answer came after")
			})
		})
	}
}

func TestBatchWhoseResultsDoNotFitItIsUnknown(t *testing.T) {
	c := newTestCommitter()
	for name, res := range map[string]fsm.BatchResult{
		"refused":               {Refused: true},
		"too few of the first":  {Results: fsm.Results{KV: make([]kv.Result, 2)}},
		"too few of the second": {Results: fsm.Results{Registry: make([]registry.Result, 2), KV: make([]kv.Result, 1)}},
	} {
		k := &call{items: make([]fsm.Item, 2), done: make(chan struct{})}
		c.finish(&batch{calls: []*call{k}}, res)
		<-k.done
		expect.That(t, errors.Is(k.err, registry.ErrUnknownOutcome), "%s: got %v, want ErrUnknownOutcome", name, k.err)
	}
}

func TestBatchIsDividedAroundWhatCannotBeRead(t *testing.T) {
	one := &call{items: make([]fsm.Item, 1)}
	two := &call{items: make([]fsm.Item, 2)}
	b := &batch{calls: []*call{one, two, one, one}}
	for _, tt := range []struct {
		name string
		item int
		want []int // calls in each part
	}{
		{"the first", 0, []int{1, 3}},
		{"the second, by its first operation", 1, []int{1, 1, 2}},
		{"the second, by its last operation", 2, []int{1, 1, 2}},
		{"the last", 4, []int{3, 1}},
		{"not known", -1, []int{2, 2}},
		{"beyond the last", 5, []int{2, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []int
			for _, part := range b.around(tt.item) {
				got = append(got, len(part))
			}
			expect.That(t, slices.Equal(got, tt.want), "parts of %v calls, want %v", got, tt.want)
		})
	}
}

func TestCommitterSendsRenewalsToALeaderThatKnowsNoWait(t *testing.T) {
	leader := leaderWithout(t) // serves only Node.Commit, as older versions did
	c := follower(t, leader.address)
	need.OK(t, expect.Err(c.commitAt(t.Context(), leader.address, callCommitLater, (&batch{}).encode(codec.Newest, fsm.Bound{}))))
	expect.Equal(t, leader.connections.Load(), 1, "connections:")
}

// newTestCommitter returns a committer that sends nothing.
func newTestCommitter() *committer {
	return newCommitter(committerConfig{InFlight: 1, Nodes: port.NewNodes(nil, nil), Metrics: newCommitMetrics(prometheus.NewRegistry())})
}

func renewal() []fsm.Item {
	return []fsm.Item{{KV: kv.RenewSession{ID: "00000000-0000-0000-0000-000000000001"}}}
}

// waiting returns how many calls are queued, and how many are gathered.
func (c *committer) waiting() (queued, gathered int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls), len(c.gathered)
}

func TestGatheredRenewalsWaitForCompanyAndAreQueuedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		began := time.Now()
		for range 10 {
			all.Go(func() { c.gather(ctx, time.Now(), renewal(), 50, gathered) })
			time.Sleep(gatherFor / 20)
		}
		synctest.Wait()
		queued, _ := c.waiting()
		expect.That(t, queued == 0, "%d renewals are queued after half the time, want none", queued)
		time.Sleep(gatherFor / 2)
		synctest.Wait()
		if queued, gathered := c.waiting(); queued != 10 || gathered != 0 || len(c.wake) != 1 {
			t.Errorf("%d are queued, %d are not, want all; woken: %d", queued, gathered, len(c.wake))
		}
		c.mu.Lock()
		for _, k := range c.calls {
			expect.Equal(t, k.arrived.Sub(began), gatherFor, "counted as arrived")
		}
		c.mu.Unlock()
		cancel()
		all.Wait()
	})
}

func TestManyGatheredRenewalsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range gatherMost + 1 {
			all.Go(func() { c.gather(ctx, time.Now(), renewal(), 50, gathered) })
		}
		synctest.Wait()
		queued, gathered := c.waiting()
		expect.That(t, queued == gatherMost && gathered == 1, "%d are queued and %d wait, want %d and 1", queued, gathered, gatherMost)
		time.Sleep(gatherFor)
		synctest.Wait()
		queued, gathered = c.waiting()
		expect.That(t, queued == gatherMost+1 && gathered == 0, "%d are queued and %d wait after the time, want all queued", queued, gathered)
		cancel()
		all.Wait()
	})
}

func TestWriteDoesNotWaitForGatheredRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { c.gather(ctx, time.Now(), renewal(), 50, gathered) })
		synctest.Wait()
		all.Go(func() { c.commit(ctx, time.Now(), []fsm.Item{{KV: kv.KeyOp{Key: "k"}}}, 50, atOnce) })
		synctest.Wait()
		queued, gathered := c.waiting()
		expect.That(t, queued == 1 && gathered == 1, "%d are queued and %d wait, want the write queued and the renewal not", queued, gathered)
		cancel()
		all.Wait()
	})
}

func TestRenewalIsNotGatheredWithoutBatching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCommitter(committerConfig{InFlight: 1, NoBatching: true, Nodes: port.NewNodes(nil, nil), Metrics: newCommitMetrics(prometheus.NewRegistry())})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { c.gather(ctx, time.Now(), renewal(), 50, gathered) })
		synctest.Wait()
		queued, _ := c.waiting()
		expect.That(t, queued == 1, "%d are queued, want it queued at once", queued)
		cancel()
		all.Wait()
	})
}

func TestGatheredRenewalWhoseCallerGoesHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		ctx, cancel := context.WithTimeout(t.Context(), gatherFor/2)
		defer cancel()
		_, err := c.gather(ctx, time.Now(), renewal(), 50, gathered)
		expect.That(t, errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, registry.ErrUnknownOutcome),
			"got %v, want the context's error: it certainly had no effect", err)
		time.Sleep(gatherFor)
		if b, _ := c.closeBatch(); b != nil {
			t.Errorf("%d calls were taken", len(b.calls))
		}
	})
}

func TestGatheredRenewalUnderWayWhoseCallerGoesIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		ctx, cancel := context.WithTimeout(t.Context(), 2*gatherFor)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := c.gather(ctx, time.Now(), renewal(), 50, gathered)
			done <- err
		}()
		time.Sleep(gatherFor)
		synctest.Wait()
		b, _ := c.closeBatch()
		need.That(t, b != nil, "nothing was taken")
		expect.ErrorIs(t, <-done, registry.ErrUnknownOutcome, "got")
	})
}

func TestGatheredRenewalsEndWhenTheNodeStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCommitter()
		done := make(chan error, 1)
		go func() {
			_, err := c.gather(t.Context(), time.Now(), renewal(), 50, gathered)
			done <- err
		}()
		synctest.Wait()
		began := time.Now()
		c.shut()
		if err := <-done; !errors.Is(err, registry.ErrClosed) || time.Since(began) > 0 {
			t.Errorf("got %v after %v, want ErrClosed at once", err, time.Since(began))
		}
		expect.ErrorIs(t, expect.Err(c.gather(t.Context(), time.Now(), renewal(), 50, gathered)), registry.ErrClosed, "after the end: got")
		time.Sleep(2 * gatherFor)
	})
}

func TestWriteAfterAPauseWaitsUntilItsClientCanBeSeenToHaveGone(t *testing.T) {
	now := time.Now()
	var p pauseDetector
	expect.Equal(t, p.grace(now), 0, "before the first beat:")
	for range 100 {
		p.beat(now)
		now = now.Add(20 * time.Millisecond)
	}
	expect.Equal(t, p.grace(now), 0, "without a pause:")
	now = now.Add(time.Minute)
	expect.Equal(t, p.grace(now), wakeGrace, "the first after a pause:")
	p.beat(now)
	expect.Equal(t, p.grace(now.Add(wakeGrace/4)), wakeGrace*3/4, "after the beat:")
	expect.Equal(t, p.grace(now.Add(wakeGrace)), 0, "when the time is over:")
}

// The time of the last pause is then in the future.
func TestWriteDoesNotWaitForAWallClockThatIsSetBack(t *testing.T) {
	now := time.Now()
	var p pauseDetector
	p.beat(now)
	now = now.Add(time.Minute)
	p.beat(now) // after a pause
	back := setBack(now.Add(2*wakeGrace), time.Hour)
	step := back.Round(0).Sub(now.Round(0))
	need.That(t, step <= 0 && back.Sub(now) == 2*wakeGrace, "the clock was not set back: %v", step)
	expect.Equal(t, p.grace(back), 0, "a write waits for")
}

// setBack returns a reading of a clock whose wall time was set back by whole seconds, while its monotonic time goes
// on. Package time cannot make one otherwise: the seconds are above the lowest 30 bits of its first field.
func setBack(t time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) -= uint64(by/time.Second) << 30
	return t
}

// instantLog is a log whose entries take effect at once.
type instantLog struct {
	machine *fsm.Machine

	mu      sync.Mutex // guards the fields below
	index   uint64
	entries []loggedEntry
}

type loggedEntry struct {
	at    time.Duration // since the leader was started
	items int
}

// Apply implements applier.
func (l *instantLog) Apply(entry []byte, _ time.Duration) raft.ApplyFuture {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index++
	applied, err := l.machine.Apply(l.index, 1, entry)
	return instantResult{applied, err, l.index}
}

type instantResult struct {
	applied fsm.Applied
	err     error
	index   uint64
}

func (r instantResult) Error() error  { return r.err }
func (r instantResult) Response() any { return r.applied }
func (r instantResult) Index() uint64 { return r.index }

// renewalRig is the committer of a leader in virtual time.
type renewalRig struct {
	*committer
	log   *instantLog
	ctx   context.Context // until the rig stops
	began time.Time
	calls sync.WaitGroup
}

const renewalWait = 100 * time.Millisecond

func newRenewalRig(t *testing.T, wait time.Duration) *renewalRig {
	t.Helper()
	log := &instantLog{machine: fsm.NewMachine(), index: 1}
	founded := need.Got(log.machine.Apply(1, 1, fsm.AppendEstablish(nil, codec.Newest, fsm.Establish{Node: "n1", Cluster: "c", Level: codec.Newest})))(t)
	began := time.Now()
	ctx, stop := context.WithCancel(context.Background())
	state := new(membership.LeaderState)
	state.Lead(membership.NewLeadership(expiry.NewReign(founded.Epoch, 0, log.machine.View()), ctx, began))
	metrics := newCommitMetrics(prometheus.NewRegistry())
	r := &renewalRig{log: log, ctx: ctx, began: began}
	r.committer = newCommitter(committerConfig{
		InFlight: 2, RenewalWait: wait, Node: "n1", Boot: 1, Leadership: state, Nodes: port.NewNodes(nil, nil), Metrics: metrics,
		Proposer: &proposer{Raft: r, Level: log.machine.Level, Leadership: state, Metrics: metrics, Stamp: func() registry.Stamp {
			return registry.Stamp{Lease: time.Since(began).Milliseconds(), Wall: time.Now().UnixMilli()}
		}},
	})
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		r.calls.Wait()
		stop()
		running.Wait()
	})
	return r
}

// Apply implements applier.
func (r *renewalRig) Apply(entry []byte, patience time.Duration) raft.ApplyFuture {
	f := r.log.Apply(entry, patience)
	items := 0
	for _, b := range f.Response().(fsm.Applied).Batches {
		items += len(b.Registry)
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.entries = append(r.log.entries, loggedEntry{time.Since(r.began), items})
	return f
}

func (r *renewalRig) entries() []loggedEntry {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return slices.Clone(r.log.entries)
}

// send commits an operation and checks its outcome.
func (r *renewalRig) send(t *testing.T, op registry.Op, pace pace, want registry.Outcome) {
	r.calls.Go(func() {
		results, err := r.Commit(r.ctx, []fsm.Item{{Origin: registry.FromClient, Op: op}}, pace)
		expect.That(t, err == nil && results.Registry[0].Outcome == want, "%T: %+v, %v; want %v", op, results, err, want)
	})
	synctest.Wait()
}

var waiter = registry.NewKey("A", "i")

func registration() registry.Op {
	return registry.Register{Instance: &registry.Instance{App: waiter.App, InstanceID: waiter.ID, Status: registry.Up, Duration: 90}}
}

func TestRenewalsOfALeaderWaitForCompanyAfterTheLastEntry(t *testing.T) {
	renew := registry.Renew{Key: waiter}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	type step struct {
		after time.Duration
		op    registry.Op
		pace  pace
		want  registry.Outcome
	}
	tests := []struct {
		name  string
		wait  time.Duration
		steps []step // after a registration
		want  []loggedEntry
	}{
		{"several share an entry", renewalWait,
			[]step{{ms(10), renew, mayWait, registry.Done}, {ms(10), renew, mayWait, registry.Done}, {ms(70), renew, mayWait, registry.Done}},
			[]loggedEntry{{0, 1}, {renewalWait, 3}}},
		{"one long after the last entry", renewalWait,
			[]step{{renewalWait, renew, mayWait, registry.Done}},
			[]loggedEntry{{0, 1}, {renewalWait, 1}}},
		{"one that may not wait, which takes the others along", renewalWait,
			[]step{{ms(10), renew, mayWait, registry.Done}, {ms(10), renew, atOnce, registry.Done}, {ms(10), renew, mayWait, registry.Done}},
			[]loggedEntry{{0, 1}, {ms(20), 2}, {ms(120), 1}}},
		{"another write of the instance, in its order", renewalWait,
			[]step{{ms(10), renew, mayWait, registry.Done}, {ms(10), registry.Cancel{Key: waiter}, atOnce, registry.Done}, {ms(10), renew, mayWait, registry.NotFound}},
			[]loggedEntry{{0, 1}, {ms(20), 2}, {ms(120), 1}}},
		{"off", 0,
			[]step{{ms(10), renew, mayWait, registry.Done}, {ms(10), renew, mayWait, registry.Done}},
			[]loggedEntry{{0, 1}, {ms(10), 1}, {ms(20), 1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRenewalRig(t, tt.wait)
				r.send(t, registration(), atOnce, registry.Done)
				for _, s := range tt.steps {
					time.Sleep(s.after)
					r.send(t, s.op, s.pace, s.want)
				}
				r.calls.Wait()
				need.Slice(t, r.entries(), tt.want, "entries, by time and number of operations:")
			})
		})
	}
}

func TestRenewalsWaitTheShorterTheMoreCome(t *testing.T) {
	// renewals in an entry when few enough arrive to wait the whole time
	const share = fewRenewals / int(time.Second/renewalWait)
	tests := []struct {
		perSecond int
		entries   int // in a second
	}{
		{fewRenewals / 5, 10},
		{fewRenewals, 10},
		{2 * fewRenewals, 2 * fewRenewals / share},
		{manyRenewals * 4 / 5, manyRenewals * 4 / 5 / share},
		{manyRenewals * 2, manyRenewals * 2},
	}
	for _, tt := range tests {
		t.Run(strconv.Itoa(tt.perSecond), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRenewalRig(t, renewalWait)
				r.send(t, registration(), atOnce, registry.Done)
				renewForASecond := func() (entries int) {
					before := len(r.entries())
					for range tt.perSecond {
						r.send(t, registry.Renew{Key: waiter}, mayWait, registry.Done)
						time.Sleep(time.Second / time.Duration(tt.perSecond))
					}
					return len(r.entries()) - before
				}
				renewForASecond() // in the first second nobody knows yet how many arrive
				got := renewForASecond()
				// One entry may have renewals that arrived before, and each waits for the next renewal, too.
				expect.That(t, got <= tt.entries+1 && got >= tt.entries*3/4, "%d entries in a second, want %d", got, tt.entries)
			})
		})
	}
}

func TestFewRenewalsWaitAgainAfterMany(t *testing.T) {
	k := renewalDelay{limit: renewalWait}
	now := time.Now()
	k.count(2*manyRenewals, now)
	expect.Equal(t, k.wait(now), 0, "while many come:")
	expect.Equal(t, k.wait(now.Add(time.Second)), 0, "in the second after that:")
	expect.Equal(t, k.wait(now.Add(2*time.Second)), renewalWait, "in the next one:")
}

func TestRenewalsOfOtherNodesWaitAtTheLeaderAndHoldNoSlotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRenewalRig(t, renewalWait)
		r.send(t, registration(), atOnce, registry.Done)
		serve := func(seq uint64, mayWait bool) {
			r.calls.Go(func() {
				id := fsm.BatchID{Node: "n2", Boot: 1, Seq: seq}
				items := []fsm.Item{{Origin: registry.FromClient, Op: registry.Renew{Key: waiter}}}
				reply := r.Serve(fsm.AppendBatch(nil, codec.Newest, id, items), mayWait)
				res, err := fsm.ParseResults(reply.Results)
				expect.That(t, reply.Answer == port.OK && err == nil && res.Registry[0].Outcome == registry.Done, "batch %d: %+v, %v", seq, res, err)
			})
			synctest.Wait()
		}
		time.Sleep(renewalWait / 10)
		serve(1, true)
		serve(2, true)
		time.Sleep(renewalWait)
		serve(3, true)
		serve(4, false)
		serve(5, true)
		r.send(t, registry.Cancel{Key: waiter}, atOnce, registry.Done) // does not overtake it
		r.calls.Wait()
		later := renewalWait + renewalWait/10
		need.Slice(t, r.entries(), []loggedEntry{{0, 1}, {renewalWait, 2}, {later, 2}, {later, 2}}, "entries, by time and number of operations:")
	})
}

func TestFollowerSendsRenewalsThatMayWaitBesideItsSlots(t *testing.T) {
	c := newCommitter(committerConfig{InFlight: 1, RenewalWait: renewalWait, Leadership: new(membership.LeaderState), Nodes: port.NewNodes(nil, nil), Metrics: newCommitMetrics(prometheus.NewRegistry())})
	queue := func(pace pace) {
		k := newCall(registry.Renew{Key: waiter})
		k.pace = pace
		c.enqueue(k)
	}
	for i := range waitingBatches {
		queue(mayWait)
		expect.Equal(t, c.holdBack(time.Now()), false, "held back:")
		own, proposals := c.closeBatch()
		need.That(t, c.sendAside(own, proposals, nil), "batch %d takes a slot", i+1)
	}
	queue(mayWait)
	expect.Equal(t, c.holdBack(time.Now()), true, "with as many at the leader as may be, held back:")
	queue(atOnce)
	expect.Equal(t, c.holdBack(time.Now()), false, "with one that may not wait, held back:")
	own, proposals := c.closeBatch()
	expect.That(t, len(own.calls) == 2 && !c.sendAside(own, proposals, nil), "the batch of %d is sent aside, want both, in a slot", len(own.calls))
	queue(mayWait)
	c.returnAside()
	expect.Equal(t, c.holdBack(time.Now()), false, "with one back, held back:")
}
