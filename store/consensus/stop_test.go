package consensus

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// ends tells a node to stop, and returns how long that took and what its Run returned.
func (n *testNode) ends(t *testing.T) (took time.Duration, err error) {
	t.Helper()
	began := time.Now()
	n.stop()
	select {
	case err = <-n.done:
		n.done <- err
	case <-time.After(limit):
		t.Fatalf("the node did not stop within %v", limit)
	}
	return time.Since(began), err
}

// hangingLeader begins to send a snapshot to a node, and hangs. The function returned waits until it is told that the
// snapshot was not taken.
func hangingLeader(t *testing.T, n *testNode) (refused func()) {
	t.Helper()
	peer := testNetwork(t, hello{Cluster: n.clusterID(), ServerID: "n2.bb"}, store.TLSFiles{})
	leader := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: peer, Timeout: limit, Logger: newRaftLogger(n.log)})
	t.Cleanup(func() { leader.Close() })
	rest, hangs := io.Pipe()
	t.Cleanup(func() { hangs.Close() })
	sent := make(chan error, 1)
	go func() {
		sent <- leader.InstallSnapshot(raft.ServerID(n.id.ServerID), raft.ServerAddress(n.net.Addr().String()), &raft.InstallSnapshotRequest{
			RPCHeader:       raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n2.bb"), Addr: []byte(peer.Addr().String())},
			SnapshotVersion: raft.SnapshotVersionMax, Term: n.raft.CurrentTerm() + 1, LastLogIndex: 1000, LastLogTerm: 1, Size: 1 << 40,
			Configuration: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "n2.bb", Address: raft.ServerAddress(peer.Addr().String())}}}),
		}, &raft.InstallSnapshotResponse{}, io.MultiReader(bytes.NewReader(make([]byte, 1<<10)), rest))
	}()
	eventually(t, "the snapshot is on its way", func() bool {
		begun, _ := filepath.Glob(filepath.Join(n.cfg.DataDir, disk.RaftDir, "snapshots", "*.tmp"))
		return len(begun) > 0
	})
	return func() {
		hangs.Close()
		err := <-sent
		expect.That(t, err != nil, "the snapshot was taken")
	}
}

// A leader that hangs does not send the rest, and its connection stays open.
func TestANodeStopsThatWaitsForTheRestOfASnapshot(t *testing.T) {
	n := startCluster(t, 1, nil).nodes[0]
	refused := hangingLeader(t, n)
	n.unsaved.Store(false) // else it waits for a snapshot of its own, for a while
	expect.OK(t, expect.Err(n.ends(t)))
	refused()
}

func TestALeaderThatHangsInTheMiddleOfASnapshotIsNotWaitedFor(t *testing.T) {
	c := &testCluster{t: t, dir: t.TempDir()}
	n := c.prepare(c.config(0, []string{freeAddr(t)}, 1))
	c.nodes = append(c.nodes, n)
	n.net.patience = time.Second
	n.run()
	t.Cleanup(c.stopAll)
	c.waitReady(0)
	term := n.raft.CurrentTerm()
	refused := hangingLeader(t, n)
	eventually(t, "the node leads again", func() bool { return n.raft.State() == raft.Leader && n.raft.CurrentTerm() > term })
	refused()
}

func TestANodeStopsAlthoughAnotherOneDoesNotAnswer(t *testing.T) {
	tests := []struct {
		name  string
		hangs func(t *testing.T) (address string, asked func())
	}{
		{"it does not answer a request", func(t *testing.T) (string, func()) {
			peer := testNetwork(t, hello{Cluster: "c", ServerID: "n2.bb"}, store.TLSFiles{})
			return peer.Addr().String(), func() { readByte(t, <-peer.raftConns) }
		}},
		{"it does not say who it is", func(t *testing.T) (string, func()) {
			l := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
			t.Cleanup(func() { l.Close() })
			return l.Addr().String(), func() {
				conn := need.Got(l.Accept())(t)
				t.Cleanup(func() { conn.Close() })
				readByte(t, conn)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			address, asked := tt.hangs(t)
			c := &testCluster{t: t, dir: t.TempDir()}
			n := c.prepare(c.config(0, []string{freeAddr(t)}, 1))
			need.OK(t, n.adoptCluster("c"))
			err := n.raft.BootstrapCluster(raft.Configuration{Servers: []raft.Server{
				{ID: raft.ServerID(n.id.ServerID), Address: raft.ServerAddress(n.net.Addr().String())},
				{ID: "n2.bb", Address: raft.ServerAddress(address)},
			}}).Error()
			need.OK(t, err)
			n.run()
			asked() // for its vote
			took, err := n.ends(t)
			expect.OK(t, err)
			expect.That(t, took <= transportTimeout/2, "it stopped after %v, as if it waited for the answer", took)
		})
	}
}

func readByte(t *testing.T, conn net.Conn) {
	t.Helper()
	need.OK(t, conn.SetReadDeadline(time.Now().Add(limit)))
	need.Got(io.ReadFull(conn, make([]byte, 1)))(t)
}

// What has failed may keep the node from closing, as a damaged entry does, which is read by somebody who waits then.
func TestAFailureWhileANodeStopsEndsItAndIsTold(t *testing.T) {
	c := &testCluster{t: t, dir: t.TempDir()}
	n := c.prepare(c.config(0, []string{freeAddr(t)}, 1))
	n.net.wg.Add(1) // which keeps it
	n.run()
	go func() {
		<-n.closing.Done()
		n.fail(errTermFell)
	}()
	_, err := n.ends(t)
	expect.ErrorIs(t, err, errTermFell, "Run returned")
	n.net.wg.Done()
	<-n.disk.closed
}

func TestASnapshotEndsWhenThereIsNoMoreTime(t *testing.T) {
	s := startCluster(t, 1, nil).nodes[0]
	ended, end := context.WithCancel(t.Context())
	end()
	sink := need.Got(s.snapshots.Create(raft.SnapshotVersionMax, 1, 1, raft.Configuration{}, 0, nil))(t)
	err := (frozen{s.machine.Snapshot(), ended}).Persist(sink)
	expect.That(t, errors.Is(err, context.Canceled), "got %v, want it canceled", err)
	left, _ := filepath.Glob(filepath.Join(s.cfg.DataDir, disk.RaftDir, "snapshots", "*.tmp"))
	expect.That(t, len(left) == 0, "it leaves %v", left)
}

func TestTheWaitForAFutureIsBoundedAlsoWhereItTakesTimeToGetIt(t *testing.T) {
	busy := make(chan struct{})
	defer close(busy)
	err := waitFuture(t.Context(), later(func() raft.SnapshotFuture {
		<-busy
		return nopSnapshot{}
	}), time.Millisecond)
	expect.ErrorIs(t, err, errNoAnswer, "got")
}

// nopSnapshot is a snapshot that was saved.
type nopSnapshot struct{ raft.SnapshotFuture }

func (nopSnapshot) Error() error { return nil }

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

// watchedDisk is a disk in a bubble, and how long it takes until a watchdog finds that it hangs.
func watchedDisk(t *testing.T, delay time.Duration, work func(*logDisk) error, pause func(looks int) time.Duration) (hangs string, after time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := need.Got(openDisk(t.TempDir(), nil, func(err error) { t.Error(err) }))(t)
		defer d.close()
		d.delay.Set(delay)
		worked := make(chan error, 1)
		began := time.Now()
		go func() { worked <- work(d) }()
		synctest.Wait()
		dog := watchdog[diskCall]{limit: hungDisk, last: began}
		for looks := 0; hangs == "" && len(worked) == 0; looks++ {
			time.Sleep(watchInterval + pause(looks))
			synctest.Wait()
			if call, found := dog.look(time.Now(), d.running()); found {
				hangs, after = call.name, time.Since(began)
			}
		}
		d.delay.Set(0)
		expect.OK(t, <-worked)
	})
	return hangs, after
}

func TestACallHangsByTheLooksAtWhichItWasSeenAndNotByTheTimeThatPassed(t *testing.T) {
	one := func(d *logDisk) error { return d.StoreLog(&raft.Log{Index: 1, Term: 1}) }
	several := func(d *logDisk) error {
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
		work   func(*logDisk) error
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
