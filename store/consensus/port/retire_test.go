package port

import (
	"context"
	"net"
	"net/rpc"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// sleepy is served by net/rpc.
type sleepy struct{}

// Wait replies after a time.
func (sleepy) Wait(d time.Duration, reply *bool) error {
	time.Sleep(d)
	*reply = true
	return nil
}

// TestCallsGoOnWhileConnectionsEndBecauseCertificatesHaveChanged: each call is longer than the time in which the connections
// end, and both nodes go over to another authority while calls run.
func TestCallsGoOnWhileConnectionsEndBecauseCertificatesHaveChanged(t *testing.T) {
	old, next := newAuthority(t), newAuthority(t)
	files := old.issue(t, "n1")
	theirs := old.issue(t, "n2")
	client, server := testPort(t, Hello{Cluster: "c", ServerID: "n1.aa"}, files), testPort(t, Hello{Cluster: "c", ServerID: "n2.bb"}, theirs)
	client.Life = 200 * time.Millisecond // the other node's, of an hour, leaves the time to the calls
	calls := rpc.NewServer()
	need.OK(t, calls.RegisterName("Node", sleepy{}))
	accepted := make(chan net.Conn, 100)
	server.ServeNode = func(c net.Conn, _ Hello) {
		accepted <- c
		calls.ServeConn(c)
	}
	nodes := NewNodes(client, nil)
	t.Cleanup(nodes.Close)
	call := func(d time.Duration) error {
		_, err := Invoke[bool](context.Background(), nodes, server.Addr().String(), "Node.Wait", d)
		return err
	}
	need.OK(t, call(0))
	pooled, err := client.Dial(raft.ServerAddress(server.Addr().String()), limit)
	need.OK(t, err)
	first := <-accepted
	ended := make(chan error, 1)
	go func() { ended <- call(time.Second) }()

	replaceFiles(t, files.CA, old.file, next.file)
	replaceFiles(t, theirs.CA, old.file, next.file)
	need.That(t, len(client.ReloadCertificates()) == 1 && len(server.ReloadCertificates()) == 1, "the authorities did not change")
	eventually(t, "a call on another connection", func() bool {
		need.OK(t, call(0))
		return len(accepted) > 0 && <-accepted != first
	})
	expect.OKf(t, <-ended, "the call that was under way")
	eventually(t, "the end of Raft's connection", func() bool { return pooled.SetDeadline(time.Time{}) != nil })
}

// replaceFiles writes into a file what others hold.
func replaceFiles(t *testing.T, file string, with ...string) {
	t.Helper()
	var all []byte
	for _, other := range with {
		all = append(all, need.Got(os.ReadFile(other))(t)...)
	}
	need.OK(t, os.WriteFile(file, all, 0o600))
}
