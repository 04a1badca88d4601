package membership

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// lookAt is a configuration of servers, by the marks in their names: v1 has a vote, l4 has none.
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

// said are the states of the members that respond.
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
		lasted  time.Duration // how long they have been as they are
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

// A vote that cannot be taken now keeps no newcomer from its vote: it may be what the other waits for.
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
