package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/disk"
)

func TestFoundersThatMayHaveBeenDecidedAreProposedAgain(t *testing.T) {
	mine := func(id string) disk.Founder { return disk.Founder{ID: id, Addr: id} }
	older, newer := []disk.Founder{mine("n1.aa"), mine("n2.aa")}, []disk.Founder{mine("n2.aa"), mine("n3.aa")}
	for _, tt := range []struct {
		name     string
		accepted []disk.Founding // by each node
		want     []disk.Founder
	}{
		{"none was accepted", make([]disk.Founding, 3), []disk.Founder{mine("n1.aa"), mine("n2.aa"), mine("n3.aa")}},
		{"one was", []disk.Founding{{}, {Accepted: disk.Ballot{Round: 1}, Founders: older}, {}}, older},
		{"the newest of two", []disk.Founding{{Accepted: disk.Ballot{Round: 2}, Founders: newer}, {Accepted: disk.Ballot{Round: 1}, Founders: older}, {}}, newer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var promises []FoundReply
			for i, f := range tt.accepted {
				promises = append(promises, FoundReply{Self: mine(fmt.Sprintf("n%d.aa", i+1)), Founding: f})
			}
			expect.Slice(t, foundersOf(promises), tt.want, "got")
		})
	}
}

// newMembers returns what a node of a cluster ("": of none) knows, which sees no other node.
func newMembers(t *testing.T, cluster string) *Members {
	t.Helper()
	identity := need.Got(OpenIdentity(t.TempDir(), disk.Owner{Mode: disk.ModeCP, Node: "n1"}))(t)
	if cluster != "" {
		need.OK(t, identity.Adopt(cluster, 0, nil))
	}
	discard := slog.New(slog.DiscardHandler)
	p := need.Got(port.Listen(nil, "127.0.0.1:0", "", store.TLSFiles{}, discard))(t)
	p.Self = identity.Hello
	nodes := port.NewNodes(p, nil)
	t.Cleanup(func() {
		nodes.Close()
		p.Close()
		p.Wait()
	})
	return New(Config{Node: store.Config{Join: []string{"127.0.0.1:1"}, Log: discard}, Identity: identity, Port: p, Nodes: nodes, Machine: fsm.NewMachine()})
}

func TestJoinIsNotDoneBecauseANodeThatDoesNotLeadSaysSo(t *testing.T) {
	n := newMembers(t, "")
	says := NodeState{ServerID: "n2.aa", Cluster: "c1", Members: []string{"n2.aa", n.self}}
	err := n.join(context.Background(), says)
	expect.That(t, err != nil, "the node took itself for a member")
	expect.Equal(t, n.cfg.Identity.Cluster(), "", "the node adopted cluster")
}

func TestANodeThatFoundedAnotherClusterAfterItWasConnectedIsNoticed(t *testing.T) {
	s := newMembers(t, "c")
	s.setForeign([]port.Reply[NodeState]{
		{Address: "a:1", Value: NodeState{ServerID: "n2.aa", Cluster: "other"}},
		{Address: "b:1", Value: NodeState{ServerID: "n3.aa", Cluster: "c"}},
		{Address: "c:1", Value: NodeState{ServerID: "n4.aa"}},
	})
	want := []ForeignNode{{ID: "n2", Address: "a:1", ClusterID: "other"}}
	expect.Slice(t, *s.foreign.Load(), want, "got")
}

func TestStateOfAnotherNodeAtAMembersAddressIsAnError(t *testing.T) {
	there := need.Got(port.Listen(nil, "127.0.0.1:0", "", store.TLSFiles{}, slog.New(slog.DiscardHandler)))(t)
	there.Self = func() port.Hello { return port.Hello{Cluster: "c", ServerID: "n2.bb"} }
	there.ServeNode = port.Calls{"Node.State": port.Method(func(struct{}) NodeState {
		return NodeState{ServerID: "n2.bb"}
	})}.Serve
	there.Go(there.Serve)
	t.Cleanup(func() {
		there.Close()
		there.Wait()
	})
	s := newMembers(t, "c")
	at := raft.ServerAddress(there.Addr().String())
	expect.OKf(t, expect.Err(s.stateOf(t.Context(), raft.Server{ID: "n2.bb", Address: at})), "the member itself")
	_, err := s.stateOf(t.Context(), raft.Server{ID: "n3.cc", Address: at})
	var other *port.OtherNodeError
	expect.That(t, errors.As(err, &other), "another node at the member's address: %v, want OtherNodeError", err)
}

func TestSetJoinReplacesTheAddressesThatAreAsked(t *testing.T) {
	s := New(Config{Node: store.Config{Join: []string{"b:1", "a:1", "b:1"}, Log: slog.New(slog.DiscardHandler)}, Identity: need.Got(OpenIdentity(t.TempDir(), disk.Owner{Mode: disk.ModeCP, Node: "n1"}))(t)})
	expect.Deep(t, s.joinAddresses(), []string{"a:1", "b:1"}, "at first")
	s.SetJoin([]string{"c:1"})
	expect.Deep(t, s.joinAddresses(), []string{"c:1"}, "afterwards")
}
