package membership

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// promoteAfter is how long a newcomer must keep up before it may vote, and promoteWithin how many entries behind
// counts as keeping up: a voter that lacks the data would raise the quorum before it can serve in it.
const (
	promoteAfter  = 10 * time.Second
	promoteWithin = 100
)

// Promoter returns a promoter for a leadership.
func (s *Members) Promoter() *promoter {
	return &promoter{members: s, since: map[raft.ServerID]time.Time{}, silent: map[raft.ServerID]time.Time{}}
}

// lookInterval is the pause between looks at the nodes when nothing is known to be due: a node may have been
// restarted with node.voter false.
const lookInterval = 10 * time.Second

// promoter gives newcomers a vote once they keep up, takes it from nodes that must not vote, and has newcomers
// replace voters that are silent for too long (members.dead-after).
type promoter struct {
	members *Members
	seenAt  time.Time
	triedAt time.Time                   // when it last tried to take a vote
	since   map[raft.ServerID]time.Time // since when a newcomer has kept up
	silent  map[raft.ServerID]time.Time // since when a voter has been silent
}

// Round does what is due. It makes at most one change: the next is decided on a configuration that includes it.
func (p *promoter) Round(ctx context.Context) {
	look, err := p.members.Committed()
	now := time.Now()
	if err != nil || !p.due(now, look) {
		return
	}
	p.seenAt = now
	switch what, m := p.plan(now, look, p.members.statesOf(ctx, look.Servers)); what {
	case handOver:
		if err := p.members.transfer(ctx, "").Removal(); err != nil {
			p.members.cfg.Node.Log.Warn("this node must not vote, but cannot hand leadership over", "err", err)
		}
	case demote:
		p.demote(ctx, look, m)
	case promote:
		p.Promote(ctx, m, look.Index)
	case remove:
		p.remove(look, m)
	}
}

// step is a change of who votes.
type step uint8

const (
	nothing  step = iota
	handOver      // leadership, because this node must not vote
	demote
	promote
	remove
)

// plan decides what to do, from what the members have said.
func (p *promoter) plan(now time.Time, look *Configuration, states map[raft.ServerID]NodeState) (step, raft.Server) {
	ready := p.observe(now, look, states)
	voters := votersIn(look)
	var dead, unwilling raft.Server
	after := p.members.cfg.Node.DeadAfter
	for _, m := range look.Servers {
		if m.Suffrage != raft.Voter {
			continue
		}
		since, silent := p.silent[m.ID]
		switch {
		case states[m.ID].NoVote:
			unwilling = m
		case silent && now.Sub(since) >= after:
			dead = m
		}
	}
	switch {
	case len(ready) > 0 && (after == 0 || len(p.silent) == 0 || voters%2 == 0):
		return promote, ready[0]
	case len(ready) > 0 && dead.ID != "" && voters-len(p.silent) >= voters/2+1:
		// The healthy voters are a majority of the former number, and the newcomer gets its vote next: otherwise a
		// cluster would shrink to one node as its nodes die.
		return remove, dead
	case unwilling.ID == "" || now.Sub(p.triedAt) < lookInterval:
		// A newcomer, if there is one, waits for the dead voter's place. Nothing is lost: with one more vote and one
		// voter silent, still no further node may fail.
		return nothing, raft.Server{}
	}
	// Last, because it may be refused again and again, and may itself be waiting for a newcomer.
	p.triedAt = now
	if string(unwilling.ID) == p.members.self {
		return handOver, unwilling
	}
	return demote, unwilling
}

// due reports whether it is time to look at the nodes.
func (p *promoter) due(now time.Time, look *Configuration) bool {
	return p.members.cfg.Node.DeadAfter > 0 || now.Sub(p.seenAt) >= lookInterval ||
		slices.ContainsFunc(look.Servers, func(m raft.Server) bool { return m.Suffrage == raft.Nonvoter })
}

// observe records which voters are silent, and returns the newcomers that have kept up for long enough.
func (p *promoter) observe(now time.Time, look *Configuration, states map[raft.ServerID]NodeState) (ready []raft.Server) {
	silent, since := map[raft.ServerID]time.Time{}, map[raft.ServerID]time.Time{}
	keep := func(to, before map[raft.ServerID]time.Time, id raft.ServerID) time.Time {
		if _, known := before[id]; !known {
			before[id] = now
		}
		to[id] = before[id]
		return before[id]
	}
	for _, m := range look.Servers {
		st, heard := states[m.ID]
		switch {
		case m.Suffrage == raft.Voter && !heard:
			keep(silent, p.silent, m.ID)
		case m.Suffrage == raft.Voter || !heard || st.NoVote || st.Applied+promoteWithin < p.members.cfg.Machine.Index():
		case now.Sub(keep(since, p.since, m.ID)) >= promoteAfter:
			ready = append(ready, m)
		}
	}
	p.silent, p.since = silent, since
	return ready
}

func votersIn(look *Configuration) (n int) {
	for _, m := range look.Servers {
		if m.Suffrage == raft.Voter {
			n++
		}
	}
	return n
}

// remove removes a voter that was silent for too long.
func (p *promoter) remove(look *Configuration, m raft.Server) {
	name := disk.NodeName(string(m.ID))
	log := p.members.cfg.Node.Log.With("member", name, "silent-for", time.Since(p.silent[m.ID]).Round(time.Second))
	if err := p.members.Delete(look, name).Removal(); err != nil {
		log.Warn("a node that is silent for longer than members.dead-after could not be removed", "err", err)
		return
	}
	log.Warn("removed a node that was silent for longer than members.dead-after, for a newcomer to take its place")
}

// demote takes the vote of a node that must not have it, unless too few of the others respond.
func (p *promoter) demote(ctx context.Context, look *Configuration, m raft.Server) {
	log := p.members.cfg.Node.Log.With("member", disk.NodeName(string(m.ID)))
	err := p.members.agreeWithout(m, look.Servers)
	if err == nil {
		err = raftio.Within(ctx, changeLimit, func(patience time.Duration) raft.Future {
			return p.members.Raft.DemoteVoter(m.ID, look.Index, patience)
		})
	}
	if err != nil {
		log.Warn("a node that must not vote keeps its vote", "err", err)
		return
	}
	if left := votersIn(look) - 1; left < 3 {
		log.Warn("a node has lost its vote: no further node may fail", "voters", left)
		return
	}
	log.Info("a node has lost its vote")
}

// Promote gives a newcomer its vote, unless the members have changed since it was considered: a removed node must not
// come back with a vote.
func (p *promoter) Promote(ctx context.Context, m raft.Server, index uint64) {
	err := raftio.Within(ctx, changeLimit, func(patience time.Duration) raft.Future {
		return p.members.Raft.AddVoter(m.ID, m.Address, index, patience)
	})
	if err != nil {
		p.members.cfg.Node.Log.Warn("newcomer did not become a voter", "member", disk.NodeName(string(m.ID)), "err", err)
		return
	}
	p.members.cfg.Node.Log.Info("newcomer votes", "member", disk.NodeName(string(m.ID)))
}
