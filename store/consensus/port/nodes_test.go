package port

import (
	"context"
	"errors"
	"net"
	"net/rpc"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

// A node that stands still reads nothing, and what is sent to it fills the connection's buffers.
func TestInvokeEndsWhereTheNodeStandsStill(t *testing.T) {
	server := testPort(t, Hello{Cluster: "c", ServerID: "n2.bb"}, store.TLSFiles{})
	hold := make(chan struct{})
	server.ServeNode = func(net.Conn, Hello) { <-hold }
	t.Cleanup(func() { close(hold) })
	client := testPort(t, Hello{Cluster: "c", ServerID: "n1.aa"}, store.TLSFiles{})
	p := NewNodes(client, nil)
	t.Cleanup(p.Close)

	const calls = 100
	large := make([]byte, 1<<20)
	ended := make(chan error, calls)
	for range calls {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := Invoke[WorkReply](ctx, p, server.Addr().String(), "Node.Commit", large)
			ended <- err
		}()
	}
	for i := range calls {
		select {
		case err := <-ended:
			expect.That(t, err != nil, "a call without a reply has succeeded")
		case <-time.After(limit):
			t.Fatalf("only %d of %d calls have ended after %v", i, calls, limit)
		}
	}
}

type (
	WorkReply  struct{ Results []byte }
	PlaceReply struct{ Index uint64 }
)

// busyNode answers neither reads nor writes until it is told to.
type busyNode struct{ writing, answerWrites, answerReads chan struct{} }

func (n *busyNode) Commit(_ []byte, _ *WorkReply) error {
	close(n.writing)
	<-n.answerWrites
	return nil
}

func (n *busyNode) ReadIndex(_ bool, _ *PlaceReply) error {
	<-n.answerReads
	return nil
}

func TestInvokeThatTimesOutDoesNotCutOffWrites(t *testing.T) {
	node := &busyNode{writing: make(chan struct{}), answerWrites: make(chan struct{}), answerReads: make(chan struct{})}
	calls := rpc.NewServer()
	need.OK(t, calls.RegisterName("Node", node))
	server := testPort(t, Hello{Cluster: "c", ServerID: "n2.bb"}, store.TLSFiles{})
	server.ServeNode = func(conn net.Conn, _ Hello) { calls.ServeConn(conn) }
	t.Cleanup(func() { close(node.answerReads) })
	p := NewNodes(testPort(t, Hello{Cluster: "c", ServerID: "n1.aa"}, store.TLSFiles{}), nil)
	t.Cleanup(p.Close)

	written := make(chan error, 1)
	go func() {
		_, err := Invoke[WorkReply](t.Context(), p, server.Addr().String(), "Node.Commit", []byte{})
		written <- err
	}()
	<-node.writing
	if _, err := Invoke[PlaceReply](t.Context(), p, server.Addr().String(), "Node.ReadIndex", true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a read that is not answered: %v, want that its time is up", err)
	}
	close(node.answerWrites)
	expect.OKf(t, <-written, "the write that was on its way meanwhile")
}

func TestAttemptLimitGrowsWhereNodesAreFarFromEachOther(t *testing.T) {
	tests := []struct {
		name           string
		trips          map[lineKey]time.Duration
		attempt, write time.Duration
	}{
		{name: "not connected", attempt: quickAttempt, write: 850 * time.Millisecond},
		{name: "still dialling", trips: map[lineKey]time.Duration{{"a", laneQuick}: 0}, attempt: quickAttempt, write: 850 * time.Millisecond},
		{name: "in one place", trips: map[lineKey]time.Duration{{"a", laneQuick}: time.Millisecond}, attempt: 303 * time.Millisecond, write: 858 * time.Millisecond},
		{name: "the most distant one counts", trips: map[lineKey]time.Duration{{"a", laneQuick}: 0, {"b", laneWork}: 300 * time.Millisecond, {"c", laneWork}: 20 * time.Millisecond}, attempt: 1200 * time.Millisecond, write: 3400 * time.Millisecond},
		{name: "the shorter of two answers of a node", trips: map[lineKey]time.Duration{{"a", laneQuick}: 100 * time.Millisecond, {"a", laneWork}: 700 * time.Millisecond}, attempt: 600 * time.Millisecond, write: 1700 * time.Millisecond},
		{name: "too far", trips: map[lineKey]time.Duration{{"a", laneWork}: 10 * time.Second}, attempt: maxAttempt, write: 5666 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := NewNodes(nil, nil)
			for to, trip := range tt.trips {
				p.lines[to] = &line{}
				p.lines[to].shortest.Store(int64(trip))
			}
			expect.Equal(t, p.AttemptLimit(), tt.attempt, "attempts get")
			expect.Equal(t, p.Stretch(850*time.Millisecond).Truncate(time.Millisecond), tt.write, "850 ms become")
		})
	}
}
