package consensus

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/world"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// ends stops a node, and returns how long that took and what its Run returned.
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

// openPort opens the node-to-node port of a node that does not exist: it shakes hands, and serves no call.
func openPort(t *testing.T, h port.Hello) *port.Port {
	t.Helper()
	p := need.Got(port.Listen(&world.World{Network: around}, freeAddr(t), "", store.TLSFiles{}, slog.New(slog.DiscardHandler)))(t)
	p.Self = func() port.Hello { return h }
	p.ServeNode = func(c net.Conn, _ port.Hello) { io.Copy(io.Discard, c) }
	p.Go(p.Serve)
	t.Cleanup(func() {
		p.Close()
		p.Wait()
	})
	return p
}

// hangingLeader starts sending a snapshot to a node, and hangs. The returned function waits for the news that the
// snapshot was not taken.
func hangingLeader(t *testing.T, n *testNode) (refused func()) {
	t.Helper()
	peer := openPort(t, port.Hello{Cluster: n.identity.Cluster(), ServerID: "n2.bb"})
	leader := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: peer, Timeout: limit, Logger: raftio.NewLogger(n.log)})
	t.Cleanup(func() { leader.Close() })
	rest, hangs := io.Pipe()
	t.Cleanup(func() { hangs.Close() })
	sent := make(chan error, 1)
	go func() {
		sent <- leader.InstallSnapshot(raft.ServerID(n.serverID()), raft.ServerAddress(n.net.Addr().String()), &raft.InstallSnapshotRequest{
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
		expect.That(t, (<-sent) != nil, "the snapshot was taken")
	}
}

// A leader that hangs does not send the rest, and its connection stays open.
func TestStopDoesNotWaitForTheRestOfASnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := startCluster(t, 1, nil).nodes[0]
		refused := hangingLeader(t, n)
		n.unsaved.Store(false) // otherwise it waits for a snapshot of its own, for a while
		expect.OK(t, expect.Err(n.ends(t)))
		refused()
	})
}

func TestSnapshotOfALeaderThatHangsIsNotWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &testCluster{t: t, dir: t.TempDir()}
		n := c.prepare(c.config(0, []string{freeAddr(t)}, 1))
		c.nodes = append(c.nodes, n)
		n.transport.Patience = time.Second
		n.run()
		t.Cleanup(c.stopAll)
		c.waitReady(0)
		term := n.raft.CurrentTerm()
		refused := hangingLeader(t, n)
		eventually(t, "the node leads again", func() bool { return n.raft.State() == raft.Leader && n.raft.CurrentTerm() > term })
		refused()
	})
}

func TestStopDoesNotWaitForANodeThatDoesNotReply(t *testing.T) {
	tests := []struct {
		name  string
		hangs func(t *testing.T) (address string, asked func())
	}{
		{"it does not answer a request", func(t *testing.T) (string, func()) {
			peer := openPort(t, port.Hello{Cluster: "c", ServerID: "n2.bb"})
			return peer.Addr().String(), func() { readByte(t, accepted(t, peer)) }
		}},
		{"it does not say who it is", func(t *testing.T) (string, func()) {
			l := listen(t)
			return l.Addr().String(), func() {
				conn := need.Got(l.Accept())(t)
				t.Cleanup(func() { conn.Close() })
				readByte(t, conn)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				address, asked := tt.hangs(t)
				c := &testCluster{t: t, dir: t.TempDir()}
				n := c.prepare(c.config(0, []string{freeAddr(t)}, 1))
				need.OK(t, n.identity.Adopt("c", 0, nil))
				err := n.raft.BootstrapCluster(raft.Configuration{Servers: []raft.Server{
					{ID: raft.ServerID(n.serverID()), Address: raft.ServerAddress(n.net.Addr().String())},
					{ID: "n2.bb", Address: raft.ServerAddress(address)},
				}}).Error()
				need.OK(t, err)
				n.run()
				asked() // for its vote
				took, err := n.ends(t)
				expect.OK(t, err)
				expect.That(t, took <= port.RaftTimeout/2, "it stopped after %v, as if it waited for the answer", took)
			})
		})
	}
}

// accepted waits for the next connection of Raft.
func accepted(t *testing.T, p *port.Port) net.Conn {
	t.Helper()
	return need.Got(p.Accept())(t)
}

func readByte(t *testing.T, conn net.Conn) {
	t.Helper()
	need.OK(t, conn.SetReadDeadline(time.Now().Add(limit)))
	need.Got(io.ReadFull(conn, make([]byte, 1)))(t)
}

// A failure may keep the node from closing, as with a damaged entry, whose reader waits.
func TestFailureDuringAStopEndsTheNodeAndIsReturned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &testCluster{t: t, dir: t.TempDir()}
		n := c.prepare(c.config(0, []string{freeAddr(t)}, 1))
		kept := make(chan struct{})
		n.net.Go(func() { <-kept }) // which keeps it
		n.run()
		failed := errors.New("failed, as planned")
		go func() {
			<-n.closing.Done()
			n.fail(failed)
		}()
		_, err := n.ends(t)
		expect.ErrorIs(t, err, failed, "Run returned")
		close(kept)
		eventually(t, "the log is closed", func() bool {
			_, err := n.disk.LastIndex()
			return err != nil
		})
	})
}

func TestSnapshotEndsWhenItsTimeIsUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n := startCluster(t, 1, nil).nodes[0]
		n.endSaving()
		expect.ErrorSays(t, n.raft.Snapshot().Error(), context.Canceled.Error(), "the snapshot ended with")
		left := need.Got(filepath.Glob(filepath.Join(n.cfg.DataDir, disk.RaftDir, "snapshots", "*")))(t)
		expect.That(t, len(left) == 0, "it leaves %v", left)
	})
}

// slowStore makes sinks whose Close and Cancel block until synced is closed, as on a slow disk.
type slowStore struct {
	raft.SnapshotStore
	called chan string
	synced chan struct{}
}

type slowSink struct {
	raft.SnapshotSink
	of slowStore
}

func (s slowStore) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, at uint64, t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, members, at, t)
	return slowSink{sink, s}, err
}

func (s slowSink) Close() error  { return s.end("Close", s.SnapshotSink.Close) }
func (s slowSink) Cancel() error { return s.end("Cancel", s.SnapshotSink.Cancel) }

func (s slowSink) end(name string, end func() error) error {
	s.of.called <- name
	<-s.of.synced
	return end()
}

func TestNodeThatStopsDoesNotWaitForTheSyncOfASnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &testCluster{t: t, dir: t.TempDir()}
		n := c.prepare(c.config(0, []string{freeAddr(t)}, 1))
		slow := slowStore{n.snapshots.SnapshotStore, make(chan string, 9), make(chan struct{})}
		// what still ends has ended before the directory is removed
		defer func() { close(slow.synced); synctest.Wait() }()
		n.snapshots.SnapshotStore = slow
		c.nodes = append(c.nodes, n)
		n.run()
		c.waitReady(0)
		took, err := n.ends(t)
		expect.OK(t, err)
		expect.Equal(t, len(slow.called), 1, "calls of the sink")
		expect.Equal(t, <-slow.called, "Close", "the sync was")
		expect.That(t, took >= snapshotLimit, "it stopped after %v: the snapshot had no time", took)
	})
}

func TestSinkWhoseTimeIsUpSyncsNothing(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	slow := slowStore{called: make(chan string, 9)}
	discarded := 0
	sink := &boundedSink{SnapshotSink: slowSink{of: slow}, until: ended, discard: func() error { discarded++; return nil }}
	expect.ErrorIs(t, expect.Err(sink.Write([]byte("x"))), context.Canceled, "a write ended with")
	expect.ErrorIs(t, sink.Close(), context.Canceled, "the close ended with")
	expect.OK(t, sink.Cancel())
	expect.OK(t, sink.Cancel()) // as Raft does after every failure
	expect.Equal(t, discarded, 1, "what was written was discarded")
	expect.Equal(t, len(slow.called), 0, "calls of the sink")
}

func TestLoopWatchHasRepliesOfTheMainLoopThatLeads(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		n := c.nodes[c.leader()]
		before := n.loop.Turns()
		eventually(t, "the main loop of "+n.cfg.Node+" answers", func() bool { return n.loop.Turns() > before+3 })
	})
}

// If Raft panicked, it would end this very process.
func TestDiskThatCannotWriteTheTermEndsTheNodeAndNotTheProcess(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		leader := c.leader()
		at := (leader + 1) % 3
		broken := c.nodes[at]
		// The next term is below what the disk holds, so its write fails, and no other one.
		need.OK(t, broken.disk.SetUint64([]byte("CurrentTerm"), 1<<32))
		need.OK(t, c.nodes[leader].halt())
		var err error
		select {
		case err = <-broken.done:
		case <-time.After(limit):
			t.Fatalf("the node still runs after %v", limit)
		}
		expect.That(t, err != nil && strings.Contains(err.Error(), "store the term"), "the node ended with %v, want a sentence about the term", err)
		c.nodes = slices.Delete(c.nodes, at, at+1)
	})
}
