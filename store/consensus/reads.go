package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/wait"
)

// noLeader is how long somebody waits for a leader: noLeaderWait, and in proportion to attemptLimit more
// where the nodes are far from each other.
func (s *Raft) noLeader() time.Duration {
	return s.peers.Stretch(noLeaderWait)
}

// View implements registry.Service.
//
// A linearizable read needs proof that, at some moment after it began, no other leader can have
// acknowledged anything: the leader asks the voters for their terms, and a majority that still
// answers the leader's own term is that proof, since a later leader would have had to raise the
// term of a majority first. (raft.VerifyLeader is no such proof: it counts answers to messages that
// were sent before it was called, and those of non-voters.) The read is then served from any node
// that has applied what the leader had applied when the proof began.
func (s *Raft) View(ctx context.Context, read registry.Consistency) (*registry.View, error) {
	if err := s.catchUp(ctx, read); err != nil {
		return nil, err
	}
	return s.machine.View(), nil
}

// catchUp waits until this node has what a read demands.
func (s *Raft) catchUp(ctx context.Context, read registry.Consistency) error {
	if read == registry.Stale || (read == registry.Leader && s.lead.Load() != nil) {
		return nil
	}
	if s.closing.Err() != nil {
		return registry.ErrClosed
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, s.noLeader())
	defer cancel()
	rounds := s.reads
	if read == registry.Leader {
		rounds = s.indexes
	}
	index, err := rounds.join(ctx)
	if err == nil {
		err = s.waitApplied(ctx, index)
	}
	if err == nil {
		return nil
	}
	if outer.Err() != nil {
		return outer.Err()
	}
	return fmt.Errorf("%v read: %w", read, registry.ErrNoLeader)
}

// waitApplied waits until this node has applied the log up to index.
func (s *Raft) waitApplied(ctx context.Context, index uint64) error {
	for {
		more := s.applied.Wait()
		if s.machine.Index() >= index {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readRound finds out, for all who wait, how far a linearizable read must have applied.
func (s *Raft) readRound(ctx context.Context) (uint64, error) {
	index, err := s.retryRound(ctx, true)
	result := "confirmed"
	if err != nil {
		result = "failed"
	}
	s.metrics.rounds.WithLabelValues(result).Inc()
	return index, err
}

// indexRound is readRound without the proof: what the node that believes to lead has applied.
func (s *Raft) indexRound(ctx context.Context) (uint64, error) { return s.retryRound(ctx, false) }

func (s *Raft) retryRound(ctx context.Context, verify bool) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.noLeader())
	defer cancel()
	for {
		changed := s.changed.Wait()
		index, err := s.readIndex(ctx, verify)
		if err == nil {
			return index, nil
		}
		wait.Pause(ctx, changed, retryPause)
		if ctx.Err() != nil {
			return 0, err
		}
	}
}

// readIndex makes one attempt, here or at the leader.
func (s *Raft) readIndex(ctx context.Context, verify bool) (uint64, error) {
	if s.lead.Load() != nil {
		ctx, cancel := context.WithTimeout(ctx, s.peers.AttemptLimit())
		defer cancel()
		return s.leaderIndex(ctx, verify)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	leader := s.leader.Load()
	if leader == nil || leader.id == s.id.ServerID {
		return 0, registry.ErrNoLeader
	}
	defer context.AfterFunc(leader.replaced, cancel)()
	began := time.Now()
	index, err := s.readIndexAt(ctx, s.peers.DialAddress(leader.id, leader.address), verify)
	if err == nil && verify {
		s.noteProof(began, index)
	}
	return index, err
}

// leaderIndex answers for the established leader. Its own applied index covers every acknowledged
// write: those of its term are acknowledged after it applied them, older ones came before Establish.
func (s *Raft) leaderIndex(ctx context.Context, verify bool) (uint64, error) {
	l := s.lead.Load()
	if l == nil {
		return 0, errNotLeader
	}
	began, index := time.Now(), s.machine.Index()
	if verify {
		if err := s.termQuorum(ctx, l.Epoch.Term); err != nil {
			return 0, err
		}
		s.noteProof(began, index)
	}
	return index, nil
}

// termQuorum asks the voters for their terms and succeeds when a majority of them answers exactly term.
// This node counts if it has a vote, which a leader that is about to be removed has not. Every question is
// asked after the call began.
func (s *Raft) termQuorum(ctx context.Context, term uint64) error {
	members, err := s.members()
	if err != nil {
		return err
	}
	others, missing := readQuorum(members, raft.ServerID(s.id.ServerID))
	answers := make(chan bool, len(others))
	for _, server := range others {
		go func() { // ends within dialTimeout and attemptLimit
			t, err := s.termOf(server)
			answers <- err == nil && t == term
		}()
	}
	for range others {
		if missing == 0 {
			break
		}
		select {
		case yes := <-answers:
			if yes {
				missing--
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	switch {
	case missing > 0:
		return errors.New("no majority is in this leader's term")
	case s.raft.CurrentTerm() != term || s.raft.State() != raft.Leader:
		return errNotLeader
	}
	return nil
}

// readQuorum returns the voters to ask beside this node, and how many of them must agree with it to make
// a majority of all voters. That this node agrees with itself is checked at the end.
func readQuorum(members []raft.Server, self raft.ServerID) (others []raft.Server, missing int) {
	voters := 0
	for _, m := range members {
		if m.Suffrage != raft.Voter {
			continue
		}
		voters++
		if m.ID == self {
			missing--
			continue
		}
		others = append(others, m)
	}
	return others, missing + voters/2 + 1
}

// rounds lets everybody who waits for the same answer share one attempt to get it. Who joins is
// served by an attempt that begins after it joined, never by the one that is running: that is what
// makes a shared read round linearizable.
type rounds[T any] struct {
	attempt func(context.Context) (T, error)

	mu      sync.Mutex
	next    *round[T]
	arrived chan struct{} // holds one token while next is not nil
}

type round[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func newRounds[T any](attempt func(context.Context) (T, error)) *rounds[T] {
	return &rounds[T]{attempt: attempt, arrived: make(chan struct{}, 1)}
}

// join waits for the next attempt.
func (r *rounds[T]) join(ctx context.Context) (T, error) {
	r.mu.Lock()
	if r.next == nil {
		r.next = &round[T]{done: make(chan struct{})}
		r.arrived <- struct{}{}
	}
	mine := r.next
	r.mu.Unlock()
	select {
	case <-mine.done:
		return mine.value, mine.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}

// run makes attempts, one at a time, until ctx ends; who waits then, or comes later, gets the context's error.
func (r *rounds[T]) run(ctx context.Context) {
	for {
		select {
		case <-r.arrived:
		case <-ctx.Done():
			r.end(ctx.Err())
			return
		}
		r.mu.Lock()
		now := r.next
		r.next = nil
		r.mu.Unlock()
		now.value, now.err = r.attempt(ctx)
		close(now.done)
	}
}

// end makes the next round one that has failed already.
func (r *rounds[T]) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &round[T]{done: make(chan struct{})}
	}
	r.next.err = err
	close(r.next.done)
}

// termsHold is how long a node goes by what a leader has told it: no two clocks run alike.
const termsHold = 10 * time.Second

func (s *Raft) noteTerms(leader *leaderView, reply FreshReply) {
	s.terms.Store(&terms{leader: leader, seen: reply.Bound, at: time.Now()})
}

// termsOf returns what this node knows of a leader's leadership, and asks if that is nothing, or old. Its
// errors wrap errNotSent.
func (s *Raft) termsOf(ctx context.Context, leader *leaderView, address string) (*terms, error) {
	if t := s.terms.Load(); t != nil && t.leader == leader && time.Since(t.at) < termsHold {
		return t, nil
	}
	reply, err := port.Invoke[FreshReply](ctx, s.peers, address, "Node.Fresh", struct{}{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", port.ErrNotSent, err)
	case reply.Answer != answerOK:
		return nil, fmt.Errorf("%w: %s: %w", port.ErrNotSent, address, registry.ErrNoLeader)
	}
	t := &terms{leader: leader, seen: reply.Bound, at: time.Now()}
	s.terms.Store(t)
	return t, nil
}

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

// addProof keeps a proof until its index is applied.
func (f *freshness) addProof(at time.Time, index, applied uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) < maxPending {
		f.pending = append(f.pending, proof{at: at, index: index})
	}
	f.advance(applied)
}

// advance moves since to the newest proof of which everything is applied. Proofs of several
// leaderships need not be in the order of their times. The caller holds mu.
func (f *freshness) advance(applied uint64) {
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
	f.advance(applied)
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
		// The state of a node that has applied nothing is of 1970: there may be a log of which it does not know the end.
		return max(elapsed(s.opened, now), now.Sub(time.UnixMilli(s.machine.View().Stamp().Wall)))
	}
	return elapsed(since, now)
}

// stayFresh proves again and again how far this node is behind. Linearizable reads prove it as well;
// while there are enough of them it has nothing to do.
func (s *Raft) stayFresh(ctx context.Context) {
	wait.Every(ctx, freshInterval, func(now time.Time) {
		if s.age(now) > freshInterval/2 {
			s.prove(ctx) // a failure needs no words: the age grows
		}
	})
}

// prove makes one attempt to learn how far this node is behind: the leader asks the voters as for a
// linearizable read, the others ask the leader.
func (s *Raft) prove(ctx context.Context) {
	if s.lead.Load() != nil {
		ctx, cancel := context.WithTimeout(ctx, s.peers.AttemptLimit())
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
	defer context.AfterFunc(leader.replaced, cancel)()
	address := s.peers.DialAddress(leader.id, leader.address)
	reply, err := port.Invoke[FreshReply](ctx, s.peers, address, "Node.Fresh", struct{}{})
	return leader, reply, err == nil && reply.Answer == answerOK
}

// LeaderDiskFull says that another node leads and its disk is nearly full. Without an answer it is not.
func (s *Raft) LeaderDiskFull(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.peers.AttemptLimit())
	defer cancel()
	_, reply, ok := s.askFresh(ctx)
	return ok && reply.DiskFull
}

func (s *Raft) noteProof(at time.Time, index uint64) {
	s.fresh.addProof(at, index, s.machine.Index())
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
