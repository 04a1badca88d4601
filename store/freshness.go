package store

import (
	"context"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
)

const (
	// freshInterval is the longest time between two proofs of how far this node is behind, while there
	// is a leader that can give them.
	freshInterval = 100 * time.Millisecond
	// maxPending bounds the proofs whose entries this node has not applied yet. Further ones are
	// dropped, which makes the state look older than it is, never younger.
	maxPending = 128
)

// freshness knows how old this node's state can be. Raft's LastContact would not do: heartbeats pass
// beside a disk that is slow or hangs, and beside entries that wait for it.
type freshness struct {
	mu      sync.Mutex
	since   time.Time // when the newest proof began whose index is applied; zero: there is none yet
	pending []proof   // of which the index is not applied yet, oldest first
}

// proof says that whatever was acknowledged before a time stands in the log at or before an index.
type proof struct {
	at    time.Time
	index uint64
}

// note takes a proof down.
func (f *freshness) note(at time.Time, index, applied uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) < maxPending {
		f.pending = append(f.pending, proof{at: at, index: index})
	}
	f.settle(applied)
}

// settle moves since to the newest proof of which everything is applied. Proofs of several
// leaderships need not be in the order of their times. The caller holds mu.
func (f *freshness) settle(applied uint64) {
	rest := f.pending[:0]
	for _, p := range f.pending {
		switch {
		case p.index > applied:
			rest = append(rest, p)
		case p.at.After(f.since):
			f.since = p.at
		}
	}
	f.pending = rest
}

// newest returns when the newest proof began of which everything is applied; zero: there is none yet.
func (f *freshness) newest(applied uint64) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle(applied)
	return f.since
}

// elapsed is the time between two readings of this node's clock, by its monotonic or its wall clock,
// whichever says more: the monotonic one stands still while the machine sleeps, and the wall clock may
// be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(0, to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// age is how old this node's state can be: the time since it had everything that was acknowledged. A
// node that has not heard of the log's end since it started has only the stamp of its newest entry to
// go by.
func (s *Raft) age(now time.Time) time.Duration {
	since := s.fresh.newest(s.machine.Index())
	if since.IsZero() {
		age := elapsed(s.opened, now)
		if wall := s.machine.View().Stamp().Wall; wall != 0 { // something was applied
			age = max(age, now.Sub(time.UnixMilli(wall)))
		}
		return age
	}
	return elapsed(since, now)
}

// stayFresh proves again and again how far this node is behind. Linearizable reads prove it as well;
// while there are enough of them it has nothing to do.
func (s *Raft) stayFresh(ctx context.Context) {
	tick := time.NewTicker(freshInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s.age(time.Now()) > freshInterval/2 {
				s.prove(ctx) // a failure needs no words: the age grows
			}
		case <-ctx.Done():
			return
		}
	}
}

// prove makes one attempt to learn how far this node is behind: the leader asks the voters as for a
// linearizable read, the others ask the leader.
func (s *Raft) prove(ctx context.Context) {
	if s.lead.Load() != nil {
		ctx, cancel := context.WithTimeout(ctx, s.peers.attemptLimit())
		defer cancel()
		s.reads.join(ctx) // leaderIndex takes it down
		return
	}
	began := time.Now()
	if leader, reply, ok := s.askFresh(ctx); ok {
		s.noteProof(began.Add(-reply.Age), reply.Index)
		s.noteTerms(leader, reply)
	}
}

// askFresh asks the leader how far it is; false: there is none but this node, or it gave no answer.
func (s *Raft) askFresh(ctx context.Context) (*leaderView, FreshReply, bool) {
	leader := s.leader.Load()
	if leader == nil || leader.id == s.id.ServerID {
		return nil, FreshReply{}, false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(leader.gone, cancel)()
	address := s.peers.dialAddress(leader.id, leader.address)
	reply, err := invoke[FreshReply](ctx, s.peers, address, "Node.Fresh", struct{}{})
	return leader, reply, err == nil && reply.Answer == answerOK
}

// LeaderDiskFull says that another node leads and its disk is nearly full. Without an answer it is not.
func (s *Raft) LeaderDiskFull(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.peers.attemptLimit())
	defer cancel()
	_, reply, ok := s.askFresh(ctx)
	return ok && reply.DiskFull
}

func (s *Raft) noteProof(at time.Time, index uint64) {
	s.fresh.note(at, index, s.machine.Index())
}

// FreshReply answers Fresh.
type FreshReply struct {
	Answer uint8
	Index  uint64        // newest applied entry
	Age    time.Duration // Index covers what was acknowledged until so long ago
	Bound  fsm.Bound     // what permits a batch to take effect in this leadership until now
	// DiskFull: the leader's disk has too little room for what adds.
	DiskFull bool
}

// Fresh says how far the leader has applied the log and how long ago it last proved that it leads. It
// makes no proof of its own, so that many followers cost no more proofs than one.
func (n *nodeCalls) Fresh(_ struct{}, reply *FreshReply) error {
	l := n.s.lead.Load()
	if l == nil {
		reply.Answer = answerNotLeader
		return nil
	}
	reply.Bound = l.bound(time.Now())
	reply.Age = n.s.age(time.Now())
	reply.Index = n.s.machine.Index()
	reply.DiskFull = n.s.cfg.DiskFull != nil && n.s.cfg.DiskFull()
	return nil
}
