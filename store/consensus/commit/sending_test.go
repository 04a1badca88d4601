package commit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/leadership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// limit is how long a test waits for what normally takes well under a second.
const limit = time.Minute

// newCall is a call of one client.
func newCall(op registry.Op) *call {
	item := fsm.Item{Origin: registry.FromClient, Op: op}
	return &call{items: []fsm.Item{item}, size: store.SizeOf(item), arrived: time.Now(), done: make(chan struct{})}
}

// alien is an operation that no leader can read: one of another build has such a status.
func alien(id string) registry.Op {
	return registry.SetOverride{Key: registry.NewKey("A", id), Status: 99}
}

// leaderWithoutLog has no log: all operations that it can read are done.
type leaderWithoutLog struct {
	address     string
	connections atomic.Int64 // that other nodes have opened
	silent      atomic.Bool  // it replies only when the test ends
}

func leaderWithout(t *testing.T) *leaderWithoutLog {
	t.Helper()
	state := &leadership.State{}
	state.Lead(leadership.New(nil, t.Context(), time.Now()))
	leader := New(Config{InFlight: 1, Leadership: state})
	l, ended := &leaderWithoutLog{}, make(chan struct{})
	calls := port.Calls{"Node.Commit": port.Method(func(encoded []byte) CommitReply {
		_, items, err := fsm.ParseBatch(encoded)
		if err != nil {
			return leader.replyUnreadable(err)
		}
		if l.silent.Load() {
			<-ended
		}
		results := fsm.BatchResult{Results: make([]registry.Result, len(items))}
		return CommitReply{Results: fsm.AppendResults(nil, codec.Newest, results)}
	})}
	p := openPort(t, "n2.bb")
	t.Cleanup(func() { close(ended) })
	p.ServeNode = func(conn net.Conn, from port.Hello) {
		l.connections.Add(1)
		calls.Serve(conn, from)
	}
	p.Go(p.Serve)
	l.address = p.Addr().String()
	return l
}

func openPort(t *testing.T, serverID string) *port.Port {
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

// follower is the committer of a node that follows the leader at an address.
func follower(t *testing.T, leader string) *Committer {
	t.Helper()
	state := &leadership.State{Self: "n1.aa", Log: slog.New(slog.DiscardHandler)}
	state.Observe(raft.ServerAddress(leader), "n2.bb")
	nodes := port.NewNodes(openPort(t, "n1.aa"), nil)
	t.Cleanup(nodes.Close)
	metrics := NewMetrics(prometheus.NewRegistry())
	return New(Config{
		InFlight: 1, Node: "n1.aa", Leadership: state, Proposer: &Proposer{Leadership: state, Metrics: metrics, Level: newest}, Nodes: nodes, Metrics: metrics,
		TermsOf: func(context.Context, *leadership.Leader, string) (*leadership.Terms, error) {
			return &leadership.Terms{}, nil
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
	_, err := c.commitAt(ctx, leader.address, callCommit, b)
	need.That(t, err != nil, "a batch without time has a result")
	leader.silent.Store(false)
	need.OK(t, expect.Err(c.commitAt(t.Context(), leader.address, callCommit, b)))
	expect.Equal(t, leader.connections.Load(), 2, "connections:")
}

// A caller hears of an unknown outcome by the same time however long Raft had no place for its entry, as while the leader's disk is slow.
func TestResultsAreWaitedForSinceRaftWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, answer := time.Now(), make(fullRaft)
		p := &Proposer{Raft: answer, Metrics: NewMetrics(prometheus.NewRegistry())}
		_, err := p.Start(nil, enqueueTimeout).Results(t.Context())
		expect.That(t, err != nil && !errors.Is(err, port.ErrNotSent), "got %v, want an unknown outcome", err)
		expect.Equal(t, time.Since(began), store.ResultWait, "known after")
		close(answer)
	})
}

// fullRaft takes an entry at the last moment, and applies none before it is closed.
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

// A batch may have come in time, and have waited here.
func TestCommitterProposesNoBatchAfterItsTime(t *testing.T) {
	state := &leadership.State{}
	l := leadership.New(expiry.NewReign(registry.Epoch{Index: 7}, 0, fsm.NewMachine().View()), t.Context(), time.Now())
	state.Lead(l)
	metrics := NewMetrics(prometheus.NewRegistry())
	c := New(Config{InFlight: 1, Leadership: state, Metrics: metrics, Proposer: &Proposer{
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

func TestBatchWhoseResultsDoNotFitItIsUnknown(t *testing.T) {
	c := newTestCommitter()
	for name, res := range map[string]fsm.BatchResult{
		"refused":               {Refused: true},
		"too few of the first":  {KV: make([]kv.Result, 2)},
		"too few of the second": {Results: make([]registry.Result, 2), KV: make([]kv.Result, 1)},
	} {
		k := &call{items: make([]fsm.Item, 2), done: make(chan struct{})}
		c.finish(&batch{calls: []*call{k}}, res)
		if <-k.done; !errors.Is(k.err, registry.ErrUnknownOutcome) {
			t.Errorf("%s: got %v, want ErrUnknownOutcome", name, k.err)
		}
	}
}

func TestBatchIsDividedAroundWhatCannotBeRead(t *testing.T) {
	one := &call{items: make([]fsm.Item, 1)}
	two := &call{items: make([]fsm.Item, 2)}
	b := &batch{calls: []*call{one, two, one, one}}
	for _, tt := range []struct {
		name string
		item int
		want []int // calls of the parts
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
	leader := leaderWithout(t) // which serves Node.Commit alone, as those of before
	c := follower(t, leader.address)
	b := (&batch{}).encode(codec.Newest, fsm.Bound{})
	need.OK(t, expect.Err(c.commitAt(t.Context(), leader.address, callCommitLater, b)))
	expect.Equal(t, leader.connections.Load(), 1, "connections:")
}

// TestMain fails if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
