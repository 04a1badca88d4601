package consensus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

func TestReadQuorumCountsOnlyVoters(t *testing.T) {
	voter := func(id raft.ServerID) raft.Server { return raft.Server{ID: id} }
	learner := raft.Server{ID: "learner", Suffrage: raft.Nonvoter}
	tests := []struct {
		name    string
		members []raft.Server
		others  int
		missing int // how many of them make a majority
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

func TestRoundsShareAnAttemptThatBeginsAfterTheyJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int64
		r := newSharedAttempt(func(context.Context) (int64, error) {
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
		got := attempts.Load()
		expect.That(t, got == 2, "%d attempts served all, want 2", got)
		cancel()
		all.Wait()
	})
}

func TestRoundsJoinEndsWithItsContext(t *testing.T) {
	r := newSharedAttempt(func(context.Context) (int, error) { return 0, nil })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.join(ctx)
	expect.That(t, errors.Is(err, context.Canceled), "got %v, want the context's error", err)
}

func TestRoundsThatAreNeverMadeEndForAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, stop := context.WithCancel(t.Context())
		r := newSharedAttempt(func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		go r.run(running)
		joined := make(chan error, 2)
		for range 2 { // one in the running round, one in the next
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

func TestAgeCountsFromTheNewestProofThatIsApplied(t *testing.T) {
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
	got, want := f.newest(1_000_000), at(10+maxPending-1)
	expect.That(t, got.Equal(want) && len(f.pending) == 0, "after more than are remembered: since %v, want %v", got, want)
}

func TestAgeIsProvenOftenOnlyWhileItIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(reader)
		next := func(name string, want time.Duration) {
			t.Helper()
			began := time.Now()
			r.pauseProofs(t.Context())
			expect.Equal(t, time.Since(began), want, name)
		}
		next("nothing asks: the next proof comes after", unaskedInterval)
		time.AfterFunc(time.Millisecond, r.want)
		next("a reader asks: the next proof comes after", time.Millisecond)
		next("it has asked: the next proof comes after", freshInterval)
		next("no other one asks: the next proof comes after", unaskedInterval)
		r.want()
		r.want()
		next("readers have asked since the last proof: the next one comes after", freshInterval)
		r.want()
		next("they go on: the next one comes after", freshInterval)
	})
}

func TestAgeCountsTimeWhileTheMachineSlept(t *testing.T) {
	now := time.Now()
	expect.Equal(t, elapsed(now.Add(-time.Second), now), time.Second, "both clocks say one second:")
	// A time without its monotonic reading stands for a wall clock that disagrees.
	expect.Equal(t, elapsed(now.Round(0).Add(-time.Minute), now), time.Minute, "the wall clock says one minute:")
	expect.Equal(t, elapsed(now.Round(0).Add(time.Hour), now), 0, "the wall clock was set back:")
}

// replying returns the address of a node that serves the given calls.
func replying(t *testing.T, calls port.Calls) string {
	t.Helper()
	p := listenAs(t, "n2.bb")
	p.ServeNode = calls.Serve
	p.Go(p.Serve)
	return p.Addr().String()
}

func listenAs(t *testing.T, serverID string) *port.Port {
	t.Helper()
	p := need.Got(port.Listen(nil, "127.0.0.1:0", "", store.TLSFiles{}, slog.New(slog.DiscardHandler)))(t)
	p.Self = func() port.Hello { return port.Hello{Cluster: "c", ServerID: serverID} }
	t.Cleanup(func() {
		p.Close()
		p.Wait()
	})
	return p
}

func newPeers(t *testing.T) *port.Nodes {
	t.Helper()
	nodes := port.NewNodes(listenAs(t, "n1.aa"), nil)
	t.Cleanup(nodes.Close)
	return nodes
}

func TestTermOfAnotherNodeAtAVotersAddressDoesNotCount(t *testing.T) {
	at := replying(t, port.Calls{"Node.Term": port.Method(func(struct{}) TermReply {
		return TermReply{ServerID: "n2.bb", Term: 3}
	})})
	r := newReader(readerConfig{Nodes: newPeers(t), Metrics: prometheus.NewRegistry()})
	expect.OKf(t, expect.Err(r.termOf(raft.Server{ID: "n2.bb", Address: raft.ServerAddress(at)})), "the voter itself")
	_, err := r.termOf(raft.Server{ID: "n3.cc", Address: raft.ServerAddress(at)})
	var other *port.OtherNodeError
	expect.That(t, errors.As(err, &other), "another node at the voter's address: %v, want OtherNodeError", err)
}

func TestTermsOfALeaderAreAskedForAgainWhenTheyAreOld(t *testing.T) {
	at := replying(t, port.Calls{"Node.Fresh": port.Method(func(FreshQuestion) FreshReply {
		return FreshReply{Bound: fsm.Bound{Leadership: 2, Until: 1}}
	})})
	state := &membership.LeaderState{Self: "n1.aa", Log: slog.New(slog.DiscardHandler)}
	state.Observe(raft.ServerAddress(at), "n2.bb")
	r := newReader(readerConfig{Nodes: newPeers(t), Leadership: state, Metrics: prometheus.NewRegistry()})
	leader := state.Other()
	old := &membership.Terms{Leader: leader, Seen: fsm.Bound{Leadership: 1}, At: time.Now().Add(-termsHold)}
	state.SetTerms(old)
	got, err := r.TermsOf(t.Context(), leader, at)
	expect.That(t, err == nil && got.Seen.Leadership == 2, "got %+v, %v, want what the leader says now", got, err)
	again, err := r.TermsOf(t.Context(), leader, "127.0.0.1:1")
	expect.That(t, err == nil && again == got, "got %+v, %v, want what is known", again, err)
}
