package replication

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

func registers(from, to int) []registry.Op {
	var ops []registry.Op
	for i := from; i < to; i++ {
		ops = append(ops, registry.Register{Instance: peertest.Instance("ORDERS", fmt.Sprintf("orders-%d", i), 1)})
	}
	return ops
}

func ordersKey(i int) registry.Key { return registry.NewKey("ORDERS", fmt.Sprintf("orders-%d", i)) }

// wantSame fails unless a peer has what belongs to the datacenter, and nothing else.
func wantSame(t testing.TB, m *fsmtest.Memory, f *fakePeer) {
	t.Helper()
	want, got := owned(m.Newest()), f.knows()
	if maps.Equal(want, got) {
		return
	}
	t.Errorf("the peer has %d instances, want %d", len(got), len(want))
	for key, c := range want {
		g, ok := got[key]
		need.That(t, ok && g == c, "%s: the peer has %+v (there: %v), want %+v", key, g, ok, c)
	}
	for key := range got {
		_, ok := want[key]
		need.That(t, ok, "%s: the peer has it, and should not", key)
	}
}

// known starts a peer that has everything there is, so that only what comes later must be sent.
func known(t testing.TB, m *fsmtest.Memory, name string) *fakePeer {
	t.Helper()
	f := newFakePeer()
	f.has = owned(m.Newest())
	if at := m.Newest().Index(); at > 0 {
		m.Perform(t, registry.AckPeer{Peer: name, Cursor: at})
	}
	return f
}

// feeding replicates to dc2, which has the first n instances and is tuned before it starts.
func feeding(t *testing.T, n int, tune func(*link.PeerConfig, *fakePeer), do func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating)) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		m.Perform(t, registers(0, n)...)
		f, peer := known(t, m, "dc2"), datacenter("dc2")
		if tune != nil {
			tune(&peer, f)
		}
		r := replicate(t, m, map[string]*fakePeer{"dc2": f}, peer)
		defer r.stop()
		do(t, m, f, r)
	})
}

func TestFeedSendsChangesWithinTheBatchingDelay(t *testing.T) {
	feeding(t, 1, nil, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		synctest.Wait()
		m.Perform(t, registers(1, 3)...)
		m.Perform(t, registry.SetOverride{Key: ordersKey(0), Status: registry.OutOfService})
		m.Perform(t, registry.Cancel{Key: ordersKey(1)})
		elapse(501 * time.Millisecond)
		synctest.Wait()
		wantSame(t, m, f)
		expect.That(t, len(f.got().tasks) == 3 && f.got().calls == 1, "%d tasks in %d calls, want 3 in 1", len(f.got().tasks), f.got().calls)
		s := r.only()
		expect.That(t, s.State == StateOK && s.Reason == "" && s.LagChanges == 0 && s.LagMS == 0, "status %+v, want ok without a lag", s)
	})
}

func TestFeedSendsNothingAgainAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		f := newFakePeer()
		m.Perform(t, registers(0, 10)...)
		first := replicate(t, m, map[string]*fakePeer{"dc2": f}, datacenter("dc2"))
		elapse(700 * time.Millisecond)
		first.stop()
		before := len(f.got().tasks)
		m.Perform(t, registers(10, 12)...)
		second := replicate(t, m, map[string]*fakePeer{"dc2": f}, datacenter("dc2"))
		defer second.stop()
		elapse(3 * time.Second)
		wantSame(t, m, f)
		expect.Equal(t, len(f.got().tasks)-before, 2, "tasks after the restart:")
	})
}

func TestFeedReadsLaterWhatFindsNoRoom(t *testing.T) {
	feeding(t, 1, func(peer *link.PeerConfig, f *fakePeer) {
		f.wait = 100 * time.Millisecond
		peer.Queue, peer.BatchSize, peer.Workers = 20, 5, 2
	}, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		m.Perform(t, registers(1, 500)...)
		elapse(200 * time.Millisecond)
		s := r.only()
		expect.That(t, s.Pending+s.InFlight <= 20 && s.LagChanges >= 400,
			"%d tasks pending and in flight, %d changes behind: want at most 20, at least 400", s.Pending+s.InFlight, s.LagChanges)
		elapse(20 * time.Second)
		wantSame(t, m, f)
		s = r.only()
		expect.That(t, len(s.Dropped) == 0 && s.LagChanges == 0, "dropped %v, lag %d: want nothing", s.Dropped, s.LagChanges)
	})
}

func TestFeedReadsOnAsSoonAsThereIsRoom(t *testing.T) {
	feeding(t, 1, func(peer *link.PeerConfig, f *fakePeer) {
		f.wait = 10 * time.Millisecond
		peer.Queue, peer.BatchSize, peer.Workers, peer.BatchDelay = 10, 10, 1, time.Minute
	}, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		m.Perform(t, registers(1, 101)...)
		elapse(time.Second)
		wantSame(t, m, f)
	})
}

func TestFeedReadsChangesAgainThatOverflowed(t *testing.T) {
	feeding(t, 1, func(peer *link.PeerConfig, f *fakePeer) {
		f.wait = time.Second
		peer.Queue, peer.BatchSize, peer.Workers = 10, 2, 1
	}, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		synctest.Wait()
		m.Perform(t, registers(1, 11)...)
		synctest.Wait()
		// Tasks that replies ask for ignore the room.
		for i := range 15 {
			r.present()[0].currentFeed().tasks.Process(registry.Key{App: "X", ID: fmt.Sprint(i)}, link.Task{Facts: link.Heartbeat}, time.Time{})
		}
		synctest.Wait()
		got := r.only().Dropped["overflow"]
		need.That(t, got >= 10, "%d overflowed, want so many that changes were among them", got)
		elapse(30 * time.Second)
		wantSame(t, m, f)
		expect.Equal(t, m.Newest().Peer("dc2").Cursor, m.Newest().Index(), "cursor at")
	})
}

func TestFeedSendsAtOnceToAPeerThatRespondsAgain(t *testing.T) {
	feeding(t, 1, func(peer *link.PeerConfig, f *fakePeer) {
		peer.NetworkDelay, peer.MaxDelay = time.Hour, time.Hour
	}, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		f.fail(batcher.TransientError)
		m.Perform(t, registers(1, 10)...)
		elapse(10 * time.Second)
		f.fail(batcher.Success)
		r.present()[0].succeeded() // the link's sign of life got a response
		elapse(time.Second)
		wantSame(t, m, f)
	})
}

func TestPausedPeerGetsNothingUntilItIsResumed(t *testing.T) {
	feeding(t, 1, nil, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		synctest.Wait()
		by := registry.Act{Author: "alice", Reason: "maintenance"}
		pause := func(paused bool) {
			t.Helper()
			need.OK(t, r.Pause(context.Background(), "dc2", paused, by))
			synctest.Wait()
		}
		pause(true)
		before := m.Newest().Peer("dc2").Cursor
		m.Perform(t, registers(1, 4)...)
		m.Perform(t, registry.Renew{Key: ordersKey(0)})
		elapse(time.Hour)
		h := f.got()
		expect.That(t, h.calls+h.repairs == 0 && h.runs == 1,
			"%d calls and %d comparisons, and the link ran %d times: want only the run before the pause", h.calls, h.repairs, h.runs)
		s := r.only()
		want := "paused by alice: maintenance; 3 changes are waiting since 1h0m0s"
		expect.That(t, s.State == StatePaused && s.Reason == want, "state %s, reason %q, want %q", s.State, s.Reason, want)
		expect.Equal(t, m.Newest().Peer("dc2").Cursor, before, "cursor went from %d to", before)
		expect.ErrorIs(t, expect.Err(r.Diff(context.Background(), "dc2")), ErrNotSending, "Diff:")
		pause(false)
		elapse(time.Second)
		wantSame(t, m, f)
	})
}

func TestPausedPeerGetsLaterWhatWaited(t *testing.T) {
	feeding(t, 1, nil, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		synctest.Wait()
		m.Perform(t, registers(1, 4)...)
		synctest.Wait()
		for _, paused := range []bool{true, false} {
			need.OK(t, r.Pause(context.Background(), "dc2", paused, registry.Act{}))
			synctest.Wait()
		}
		expect.Equal(t, r.only().Dropped["stopped"], 3, "tasks were dropped by the pause:")
		elapse(time.Second)
		wantSame(t, m, f)
	})
}

func TestPauseByAnotherNodeIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		f := newFakePeer()
		r := replicate(t, m, map[string]*fakePeer{"dc2": f}, datacenter("dc2"))
		defer r.stop()
		synctest.Wait()
		m.Perform(t, registry.PausePeer{Peer: "dc2", Paused: true})
		elapse(time.Second)
		expect.Equal(t, r.only().State, StatePaused, "state")
		m.Perform(t, registry.PausePeer{Peer: "dc2"})
		elapse(time.Second)
		expect.Equal(t, r.only().State, StateOK, "state")
	})
}

func TestRepairOfAPeerWithoutACursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		m.Perform(t, registers(0, 600)...)
		f := newFakePeer()
		f.has[registry.NewKey("GONE", "gone-1")] = copied{version: registry.Version{Life: 1}}
		f.fail(batcher.TransientError)
		peer := datacenter("dc2")
		peer.Queue = 100 // the rest of the repair waits
		r := replicate(t, m, map[string]*fakePeer{"dc2": f}, peer)
		defer r.stop()
		elapse(5 * time.Second)
		if s := r.only(); s.State != StateFailing || s.LagChanges != 600 || s.Cursor != "" {
			t.Errorf("state %s, lag %d, cursor %q: want failing, 600, none", s.State, s.LagChanges, s.Cursor)
		}
		f.fail(batcher.Success)
		elapse(10 * time.Second)
		wantSame(t, m, f)
		s := r.only()
		expect.That(t, s.Repairs["first"] == 1 && s.LastRepair != nil && s.LastRepair.Sent == 600 && s.LastRepair.Removed == 1,
			"repairs %v, the last %+v: want one that sent 600 and removed 1", s.Repairs, s.LastRepair)
		got := m.Newest().Peer("dc2")
		expect.That(t, got.Known && got.Cursor == m.Newest().Index(), "the state keeps %+v, want a cursor at %d", got, m.Newest().Index())
	})
}

func TestRepairThatIsGivenUpStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		m.Perform(t, registers(0, 600)...)
		f := newFakePeer()
		f.result = func(tasks []link.Task) batcher.Result {
			if tasks == nil {
				return batcher.Success // it can be compared with
			}
			return batcher.TransientError
		}
		peer := datacenter("dc2")
		peer.Queue = 100
		r := replicate(t, m, map[string]*fakePeer{"dc2": f}, peer)
		elapse(time.Minute)
		r.stop()
		got := m.Newest().Peer("dc2")
		expect.That(t, !got.Known, "the state keeps a cursor: %+v", got)
		f.fail(batcher.Success)
		next := replicate(t, m, map[string]*fakePeer{"dc2": f}, peer)
		defer next.stop()
		elapse(10 * time.Second)
		wantSame(t, m, f)
	})
}

func TestRepairOfAPeerThatFellBehindTheChangeList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		m.Perform(t, registers(0, 100)...)
		f := known(t, m, "dc2")
		for i := range 50 {
			m.Perform(t, registry.Cancel{Key: ordersKey(i)})
		}
		m.Pass(25 * time.Hour)
		m.Perform(t, registers(100, 110)...)
		need.ErrorIs(t, expect.Err(m.Newest().Changes(m.Newest().Peer("dc2").Cursor, 1)), registry.ErrTooOld, "the list still reaches back:")
		r := replicate(t, m, map[string]*fakePeer{"dc2": f}, datacenter("dc2"))
		defer r.stop()
		elapse(5 * time.Second)
		wantSame(t, m, f)
		expect.Equal(t, r.only().Repairs["too-old"], 1, "repairs because the list is too short:")
		m.Perform(t, registers(110, 120)...)
		elapse(time.Second)
		wantSame(t, m, f)
	})
}

func TestRepairByDigestOfWhatDiffersAnyway(t *testing.T) {
	feeding(t, 10, func(_ *link.PeerConfig, f *fakePeer) {
		delete(f.has, ordersKey(3))
	}, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		elapse(50 * time.Second)
		expect.That(t, f.got().repairs == 0, "%d comparisons in the first 50 s, want none", f.got().repairs)
		elapse(20 * time.Second)
		wantSame(t, m, f)
		s := r.only()
		expect.That(t, s.Repairs["digest"] == 1 && f.got().repairs == 1, "%v repairs of %d comparisons, want one", s.Repairs, f.got().repairs)
	})
}

func TestRepairByAnOperator(t *testing.T) {
	feeding(t, 10, func(_ *link.PeerConfig, f *fakePeer) {
		delete(f.has, ordersKey(3))
	}, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		synctest.Wait()
		for _, ask := range []func(context.Context, string) (api.PeerDiff, error){r.Diff, r.Repair} {
			got, err := ask(context.Background(), "dc2")
			expect.That(t, err == nil && got.Missing == 1 && got.Extra == 0, "got %+v, %v: want 1 missing", got, err)
		}
		elapse(time.Second)
		wantSame(t, m, f)
		expect.Equal(t, r.only().Repairs["asked"], 1, "repairs that were asked for:")
		f.set(func(f *fakePeer) { f.slow = time.Second })
		done := make(chan error)
		go func() {
			_, err := r.Repair(context.Background(), "dc2")
			done <- err
		}()
		synctest.Wait()
		need.OK(t, r.Pause(context.Background(), "dc2", true, registry.Act{}))
		expect.ErrorIs(t, <-done, ErrNotSending, "paused meanwhile:")
		expect.ErrorIs(t, expect.Err(r.Diff(context.Background(), "dc9")), ErrUnknownPeer, "another peer:")
	})
}

func TestRepairOfWhatAPeerRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		m.Perform(t, registers(0, 1)...)
		f := known(t, m, "dc2")
		refuses := true
		f.result = func(tasks []link.Task) batcher.Result {
			for _, one := range tasks {
				if refuses && one.Key == ordersKey(5) {
					return batcher.PermanentError
				}
			}
			return batcher.Success
		}
		r := replicate(t, m, map[string]*fakePeer{"dc2": f}, datacenter("dc2"))
		defer r.stop()
		m.Perform(t, registers(1, 10)...)
		elapse(5 * time.Second)
		expect.Equal(t, len(f.knows()), 9, "instances at the peer:")
		s := r.only()
		expect.That(t, s.Dropped["permanent"] == 1 && s.LagChanges == 0, "dropped %v, lag %d: want 1 that is permanent, and no lag", s.Dropped, s.LagChanges)
		f.set(func(*fakePeer) { refuses = false })
		elapse(2 * time.Minute)
		wantSame(t, m, f)
	})
}

func TestHeartbeatsAreSentOncePerRenewal(t *testing.T) {
	feeding(t, 3, nil, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		synctest.Wait()
		for range 4 {
			m.Perform(t, registry.Renew{Key: ordersKey(1)})
			elapse(2 * time.Second)
		}
		want := map[registry.Key]int{ordersKey(1): 4}
		expect.That(t, maps.Equal(f.got().beats, want), "heartbeats %v, want %v", f.got().beats, want)
	})
}

func TestReplyDoesNotOvertakeARemoval(t *testing.T) {
	feeding(t, 3, nil, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		synctest.Wait()
		m.Perform(t, registry.Cancel{Key: ordersKey(1)})
		synctest.Wait()
		r.present()[0].submit(link.Task{Key: ordersKey(1), Facts: link.Registered})
		elapse(time.Second)
		wantSame(t, m, f)
	})
}

// An item that panics at the peer is sent three times: until then the cursor stays before it.
func TestCursorPassesAnItemThatPanicsAtThePeerAfterTheThirdTry(t *testing.T) {
	feeding(t, 1, nil, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		synctest.Wait()
		p := r.present()[0]
		var reached []registry.Index
		f.set(func(f *fakePeer) {
			f.result = func(tasks []link.Task) batcher.Result { // as rollcallpeer.Link follows a reply
				for _, one := range tasks {
					reached = append(reached, p.cursor())
					if one.Tries++; one.Tries < link.MaxTries {
						p.submit(one)
					} else {
						p.gaveUp()
						p.refused.Record(one.Key, "register", "", "it panicked")
					}
				}
				return batcher.Success
			}
		})
		before := m.Newest().Index()
		m.Perform(t, registers(1, 2)...)
		elapse(10 * time.Second)
		expect.Slice(t, reached, []registry.Index{before, before, before}, "cursor at each try")
		expect.Equal(t, p.cursor(), m.Newest().Index(), "cursor afterwards")
		s := r.only()
		expect.That(t, len(s.Refused) == 1 && s.Refused[0].ID == "orders-1" && s.Refused[0].Times == 1 && s.Dropped["permanent"] == 1, "status %+v", s)
		p.refused.Record(ordersKey(1), "register", "", "")
		expect.Equal(t, len(r.only().Refused), 0, "refused after it was accepted")
	})
}

func TestExpiryIsByTheRenewalInterval(t *testing.T) {
	s := &feed{peer: &peer{PeerConfig: link.PeerConfig{Flow: link.Flow{Expiry: 30 * time.Second}}}}
	for _, tt := range []struct {
		name     string
		facts    link.Facts
		interval int32
		want     time.Duration
	}{
		{"a heartbeat", link.Heartbeat, 10, 10 * time.Second},
		{"a registration", link.Registered, 90, 90 * time.Second},
		{"a registration of one that renews often", link.Registered, 1, 30 * time.Second},
		{"an override", link.Overridden, 90, 30 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect.Equal(t, s.expiry(link.Task{Facts: tt.facts}, &registry.Lease{Interval: tt.interval}), tt.want, "got")
		})
	}
	expect.Equal(t, s.expiry(link.Task{Facts: link.Canceled}, nil), 30*time.Second, "a removal: got")
}

func TestHeartbeatsAreGivenUpAndChangesAreNot(t *testing.T) {
	feeding(t, 200, func(peer *link.PeerConfig, f *fakePeer) {
		peer.Queue = 50
	}, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		f.fail(batcher.TransientError)
		m.Perform(t, registers(200, 201)...)
		for range 20 {
			for i := range 200 {
				m.Perform(t, registry.Renew{Key: ordersKey(i)})
			}
			elapse(30 * time.Second)
		}
		s := r.only()
		expect.That(t, s.Pending+s.InFlight <= 50, "%d tasks pending and in flight, want at most 50", s.Pending+s.InFlight)
		f.fail(batcher.Success)
		elapse(5 * time.Second)
		wantSame(t, m, f)
		expect.That(t, len(f.got().beats) != 0, "no heartbeat came through after the cut")
	})
}

func TestOperatorsActsGoToNodesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		node, remote := newFakePeer(), newFakePeer()
		node.fail(batcher.Congestion)
		peer := datacenter("n2")
		peer.Kind = link.Node
		r := replicateAs(t, Config{Side: link.Side{Service: m}}, map[string]*fakePeer{"n2": node, "dc2": remote}, peer, datacenter("dc2"))
		defer r.stop()
		synctest.Wait()
		r.Act(registry.SelfPreservation{To: registry.PreservationHeld, For: 1000})
		r.Act(registry.SelfPreservation{To: registry.PreservationReleased})
		elapse(3 * time.Second)
		node.set(func(f *fakePeer) { f.result = nil })
		elapse(3 * time.Second)
		expect.That(t, len(node.got().acts) != 0 && node.got().acts[len(node.got().acts)-1].To == registry.PreservationReleased, "the node got %+v, want the last act at the end", node.got().acts)
		expect.That(t, len(remote.got().acts) == 0, "the datacenter got %+v", remote.got().acts)
	})
}

func TestFeedOfAMinorityCannotAcknowledgeAndGoesOn(t *testing.T) {
	feeding(t, 1, nil, func(t *testing.T, m *fsmtest.Memory, f *fakePeer, r *replicating) {
		m.Perform(t, registers(1, 5)...)
		at := m.Newest().Index()
		m.Set(func(m *fsmtest.Memory) { m.ApplyErr = registry.ErrNoLeader })
		elapse(5 * time.Second)
		got := m.Newest().Peer("dc2").Cursor
		need.That(t, got != at, "acknowledged without a leader")
		m.Set(func(m *fsmtest.Memory) { m.ApplyErr, m.Applies = nil, 0 })
		elapse(10 * time.Second)
		got = m.Newest().Peer("dc2").Cursor
		expect.That(t, got == at && m.Applies == 1, "cursor at %d after %d operations, want %d after 1", got, m.Applies, at)
	})
}

// course is what happens in a run of the test below. It is drawn before the run, because a bubble's goroutine cannot
// draw.
type course struct {
	queue, batch, workers int
	expiry, delay         time.Duration
	steps                 []step
}

type step struct {
	kind     int
	instance int
	result   batcher.Result
	pause    time.Duration
}

// The kinds of steps; registering is the most frequent.
const (
	stepCancel = iota
	stepOverride
	stepEndOverride
	stepMove // by another datacenter, so that the instance moves in the list
	stepAnswer
	stepKill
	stepWait
	stepKinds = 10
)

func drawCourse(t *rapid.T) course {
	milliseconds := func(label string, least, most int) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(t, label)) * time.Millisecond
	}
	c := course{
		queue:   rapid.IntRange(2, 12).Draw(t, "queue"),
		batch:   rapid.IntRange(2, 4).Draw(t, "batch"),
		workers: rapid.IntRange(1, 3).Draw(t, "workers"),
		expiry:  milliseconds("expiry", 1000, 5000),
		delay:   milliseconds("delay", 0, 700),
	}
	results := rapid.SampledFrom([]batcher.Result{batcher.Success, batcher.Congestion, batcher.TransientError})
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		c.steps = append(c.steps, step{
			kind:     rapid.IntRange(0, stepKinds-1).Draw(t, "kind"),
			instance: rapid.IntRange(0, 9).Draw(t, "instance"),
			result:   results.Draw(t, "result"),
			pause:    milliseconds("pause", 1, 4000),
		})
	}
	return c
}

// Whatever clients do, however calls fail, and whenever a node is killed and another goes on from the cursor in the
// state: in the end the peer has the same set, without a comparison.
func TestFeedLosesNothingWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawCourse(rt)
		var lost string
		synctest.Test(t, func(t *testing.T) { lost = c.run(t) })
		if lost != "" {
			rt.Fatal(lost)
		}
	})
}

// run returns what was lost.
func (c course) run(t *testing.T) string {
	m := fsmtest.New()
	m.Perform(t, registers(0, 1)...)
	f := known(t, m, "dc2")
	f.wait = c.delay
	peer := datacenter("dc2")
	peer.Queue, peer.BatchSize, peer.Workers, peer.Expiry = c.queue, c.batch, c.workers, c.expiry
	start := func() *replicating {
		return replicateAs(t, Config{Side: link.Side{Service: m, Consensus: true}, Repair: Repair{Digest: 1000 * time.Hour}}, map[string]*fakePeer{"dc2": f}, peer)
	}
	r := start()
	for _, s := range c.steps {
		key := ordersKey(s.instance)
		switch s.kind {
		case stepCancel:
			m.Perform(t, registry.Cancel{Key: key})
		case stepOverride:
			m.Perform(t, registry.SetOverride{Key: key, Status: registry.OutOfService})
		case stepEndOverride:
			m.Perform(t, registry.DeleteOverride{Key: key, Fallback: registry.Up})
		case stepMove:
			applyAs(t, m, registry.Origin{Kind: registry.RemoteDC, DC: "dc3"}, registry.SetOverride{Key: key, Status: registry.Down})
		case stepAnswer:
			f.fail(s.result)
		case stepKill:
			// it cannot record how far it came
			m.Set(func(m *fsmtest.Memory) { m.ApplyErr = registry.ErrNoLeader })
			r.stop()
			m.Set(func(m *fsmtest.Memory) { m.ApplyErr = nil })
			r = start()
		case stepWait:
			elapse(s.pause)
		default:
			m.Perform(t, registry.Register{Instance: peertest.Instance(key.App, key.ID, m.Clock())})
		}
	}
	f.fail(batcher.Success)
	elapse(2 * time.Minute)
	r.stop()
	if n := f.got().repairs; n > 0 {
		return fmt.Sprintf("%d comparisons, want none", n)
	}
	return missing(owned(m.Newest()), f.knows())
}

// missing returns how a peer's copy differs, except for overrides, because it does not get another datacenter's.
func missing(want, got map[registry.Key]copied) string {
	for key, c := range want {
		g := got[key].version
		if g.Edit = c.version.Edit; g != c.version {
			return fmt.Sprintf("%s: the peer has %+v, want %+v", key, got[key], c)
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("the peer has %v, want %v", got, want)
	}
	return ""
}

func webKey(id string) registry.Key { return registry.NewKey("WEB", id) }

// A Eureka server gives every instance a lease, which this node must renew.
func TestPermanentInstanceIsRenewedAtAEurekaServerEvery30Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		m.Perform(t, peertest.Web("web-1"), peertest.Web("web-2"))
		m.Perform(t, registers(0, 1)...)
		applyAs(t, m, registry.Origin{Kind: registry.RemoteDC, DC: "dc2"}, registry.Replica{Instance: peertest.Instance("WEB", "theirs", 1), Life: 1, Permanent: true})
		fars := map[string]*fakePeer{"old": known(t, m, "old"), "dc2": known(t, m, "dc2")}
		old := link.PeerConfig{Name: "old", Kind: link.Eureka, URLs: []string{"http://old:8761/eureka"}}
		r := replicate(t, m, fars, old, datacenter("dc2"))
		defer r.stop()
		elapse(time.Second)
		for beats := 1; beats <= 4; beats++ {
			want := map[registry.Key]int{webKey("web-1"): beats, webKey("web-2"): beats}
			got := fars["old"].got().beats
			expect.That(t, maps.Equal(got, want), "after %d intervals the Eureka server heard %v, want %v", beats-1, got, want)
			elapse(30 * time.Second)
		}
		got := fars["dc2"].got().beats
		expect.That(t, len(got) == 0, "another Rollcall datacenter heard %v, which never end there", got)
	})
}

// The server may have been restarted meanwhile, and know nothing.
func TestPermanentInstanceThatAEurekaServerLacksIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fsmtest.New()
		m.Perform(t, peertest.Web("web-1"))
		f := known(t, m, "old")
		r := replicate(t, m, map[string]*fakePeer{"old": f}, link.PeerConfig{Name: "old", Kind: link.Eureka, URLs: []string{"http://old:8761/eureka"}})
		defer r.stop()
		elapse(time.Second)
		f.set(func(f *fakePeer) { clear(f.has) })
		elapse(31 * time.Second)
		wantSame(t, m, f)
	})
}
