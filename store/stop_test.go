package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
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
	peer := testNetwork(t, hello{Cluster: n.clusterID(), ServerID: "n2.bb"}, TLSFiles{})
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
		begun, _ := filepath.Glob(filepath.Join(n.cfg.DataDir, raftDir, "snapshots", "*.tmp"))
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
			peer := testNetwork(t, hello{Cluster: "c", ServerID: "n2.bb"}, TLSFiles{})
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
	left, _ := filepath.Glob(filepath.Join(s.cfg.DataDir, raftDir, "snapshots", "*.tmp"))
	expect.That(t, len(left) <= 0, "it leaves %v", left)
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
