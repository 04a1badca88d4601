package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
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

// newMembers returns what a node of a cluster knows if it sees no other node. With "" it belongs to no cluster.
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
	expect.That(t, n.join(context.Background(), says) != nil, "the node took itself for a member")
	expect.Equal(t, n.cfg.Identity.Cluster(), "", "the node adopted cluster")
}

func TestANodeThatFoundedAnotherClusterAfterItWasConnectedIsNoticed(t *testing.T) {
	s := newMembers(t, "c")
	s.setForeign([]port.Reply[NodeState]{
		{Address: "a:1", Value: NodeState{ServerID: "n2.aa", Cluster: "other"}},
		{Address: "b:1", Value: NodeState{ServerID: "n3.aa", Cluster: "c"}},
		{Address: "c:1", Value: NodeState{ServerID: "n4.aa"}},
	})
	expect.Slice(t, *s.foreign.Load(), []ForeignNode{{ID: "n2", Address: "a:1", ClusterID: "other"}}, "got")
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

// lookAt returns a configuration of servers, by the marks in their names: v1 has a vote, l4 does not.
func lookAt(names ...string) *Configuration {
	look := &Configuration{Index: 7}
	for _, name := range names {
		suffrage := raft.Nonvoter
		if name[0] == 'v' {
			suffrage = raft.Voter
		}
		look.Servers = append(look.Servers, raft.Server{ID: raft.ServerID(name), Suffrage: suffrage})
	}
	return look
}

// said returns the states of the members that respond.
func said(look *Configuration, silent ...string) map[raft.ServerID]NodeState {
	states := map[raft.ServerID]NodeState{}
	for _, m := range look.Servers {
		states[m.ID] = NodeState{ServerID: string(m.ID)}
	}
	for _, name := range silent {
		delete(states, raft.ServerID(name))
	}
	return states
}

func TestVotersChangeWhenItIsSafe(t *testing.T) {
	three, five := []string{"v1", "v2", "v3"}, []string{"v1", "v2", "v3", "v4", "v5"}
	with := func(names []string, more ...string) []string { return append(names[:len(names):len(names)], more...) }
	const dead = time.Minute
	for name, tc := range map[string]struct {
		members []string
		silent  []string
		after   time.Duration // members.dead-after
		lasted  time.Duration // how long they have been in that state
		want    step
		of      raft.ServerID
	}{
		"a newcomer, too soon":                              {with(three, "l4"), nil, 0, 9 * time.Second, nothing, ""},
		"a newcomer that keeps up":                          {with(three, "l4"), nil, 0, 10 * time.Second, promote, "l4"},
		"a newcomer that cannot be asked":                   {with(three, "l4"), []string{"l4"}, 0, time.Hour, nothing, ""},
		"a voter is silent, and stays":                      {with(three, "l4"), []string{"v3"}, 0, time.Hour, promote, "l4"},
		"dead, without a newcomer":                          {three, []string{"v3"}, dead, time.Hour, nothing, ""},
		"silent, with a newcomer, not for long enough":      {with(three, "l4"), []string{"v3"}, dead, 59 * time.Second, nothing, ""},
		"dead, with a newcomer":                             {with(three, "l4"), []string{"v3"}, dead, dead, remove, "v3"},
		"removed, the newcomer follows":                     {[]string{"v1", "v2", "l4"}, nil, dead, 10 * time.Second, promote, "l4"},
		"dead, and the others are no majority":              {with(three, "l4"), []string{"v2", "v3"}, dead, time.Hour, nothing, ""},
		"two of five dead, one newcomer: one goes":          {with(five, "l6"), []string{"v4", "v5"}, dead, time.Hour, remove, "v5"},
		"and the newcomer follows before the other":         {[]string{"v1", "v2", "v3", "v4", "l6"}, []string{"v4"}, dead, time.Hour, promote, "l6"},
		"three of five dead: too few are left":              {with(five, "l6"), []string{"v3", "v4", "v5"}, dead, time.Hour, nothing, ""},
		"dead, and the newcomer cannot be asked, either":    {with(three, "l4"), []string{"v3", "l4"}, dead, time.Hour, nothing, ""},
		"nothing to do where all are well and all voters":   {three, nil, dead, time.Hour, nothing, ""},
		"four voters, one dead: the newcomer makes it five": {with(three, "v4", "l5"), []string{"v4"}, dead, time.Hour, promote, "l5"},
	} {
		s := newMembers(t, "c")
		s.self, s.cfg.Node.DeadAfter = "v1", tc.after
		p, look, start := s.Promoter(), lookAt(tc.members...), time.Now()
		p.plan(start, look, said(look, tc.silent...))
		what, m := p.plan(start.Add(tc.lasted), look, said(look, tc.silent...))
		expect.That(t, what == tc.want && m.ID == tc.of, "%s: got %d of %q, want %d of %q", name, what, m.ID, tc.want, tc.of)
	}
}

func TestANodeThatIsNotToVoteLosesItsVoteAndGetsNone(t *testing.T) {
	s := newMembers(t, "c")
	s.self = "v1"
	for name, want := range map[string]step{"v1": handOver, "v2": demote} {
		look, start := lookAt("v1", "v2", "v3"), time.Now()
		states := said(look)
		states[raft.ServerID(name)] = NodeState{ServerID: name, NoVote: true}
		p := s.Promoter()
		what, _ := p.plan(start, look, states)
		expect.Equal(t, what, want, "%s is not to vote: got", name)
		what, _ = p.plan(start.Add(lookInterval/2), look, states)
		expect.Equal(t, what, nothing, "soon after: got")
		what, _ = p.plan(start.Add(lookInterval), look, states)
		expect.Equal(t, what, want, "again: got")
	}
	look, start := lookAt("v1", "v2", "v3", "l4"), time.Now()
	states := said(look)
	states["l4"] = NodeState{ServerID: "l4", NoVote: true}
	p := s.Promoter()
	p.plan(start, look, states)
	what, _ := p.plan(start.Add(time.Hour), look, states)
	expect.Equal(t, what, nothing, "a newcomer that is not to vote: got")
}

// A vote that cannot be taken away now keeps no newcomer from its vote: the removal may be waiting for that very
// vote.
func TestANewcomerVotesAlsoBesideNodesThatAreNotToVote(t *testing.T) {
	s := newMembers(t, "c")
	s.self = "v1"
	for name, after := range map[string]time.Duration{"promoted": 0, "in the place of the dead": time.Minute} {
		s.cfg.Node.DeadAfter = after
		look, start := lookAt("v1", "v2", "v3", "l4"), time.Now()
		states := said(look, "v3")
		states["v2"] = NodeState{ServerID: "v2", NoVote: true}
		p := s.Promoter()
		p.plan(start, look, states)
		what, m := p.plan(start.Add(time.Hour), look, states)
		want, of := promote, raft.ServerID("l4")
		if after > 0 {
			want, of = remove, "v3"
		}
		expect.That(t, what == want && m.ID == of, "%s: got %d of %q", name, what, m.ID)
	}
}

func TestRemovalWhoseOutcomeIsNotKnownIsUnknown(t *testing.T) {
	for _, tc := range []struct {
		err  error // from Raft
		want error // from RemoveMember; nil if removed
	}{
		{nil, nil},
		{raft.ErrNotLeader, registry.ErrNoLeader},
		{raft.ErrLeadershipLost, registry.ErrUnknownOutcome},
		{raft.ErrRaftShutdown, registry.ErrUnknownOutcome},
		{fmt.Errorf("%w within 3s", raftio.ErrNoResult), registry.ErrUnknownOutcome},
		{raft.ErrEnqueueTimeout, ErrMembership},
		{errors.New("configuration changed since 7"), ErrMembership},
	} {
		expect.ErrorIs(t, removalReply(tc.err).Removal(), tc.want, "%v: got", tc.err)
	}
}

// TestMain fails if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
