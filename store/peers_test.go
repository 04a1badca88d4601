package store

import (
	"context"
	"net"
	"testing"
	"time"
)

// A node that stands still reads nothing, and what is sent to it fills the connection's buffers.
func TestCallsToANodeThatStandsStillEnd(t *testing.T) {
	server := testNetwork(t, hello{Cluster: "c", ServerID: "n2.bb"}, nil)
	hold := make(chan struct{})
	server.serveNode = func(net.Conn, hello) { <-hold }
	t.Cleanup(func() { close(hold) })
	client := testNetwork(t, hello{Cluster: "c", ServerID: "n1.aa"}, nil)
	p := newPeers(client, nil)
	t.Cleanup(p.close)

	const calls = 100
	large := make([]byte, maxEntryBytes)
	ended := make(chan error, calls)
	for range calls {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := invoke[CommitReply](ctx, p, server.Addr().String(), "Node.Commit", large)
			ended <- err
		}()
	}
	for i := range calls {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("a call that nobody answers has succeeded")
			}
		case <-time.After(limit):
			t.Fatalf("only %d of %d calls have ended after %v", i, calls, limit)
		}
	}
}
