package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/internal/world"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// readerConfig is what a reader needs from its node.
type readerConfig struct {
	World      *world.World // nil means the real machine
	Machine    *fsm.Machine
	Leadership *membership.LeaderState
	Nodes      *port.Nodes
	Members    func() ([]raft.Server, error) // returns the newest configuration in this node's log
	DiskFull   func() bool                   // reports whether this node's disk is nearly full; may be nil
	Opened     time.Time                     // when this node started
	Closing    context.Context               // ends when the node stops
	Metrics    prometheus.Registerer
}

// reader proves how far reads must have applied the log, and knows how old this node's state can be.
type reader struct {
	Raft *raft.Raft // set once Raft is started, before Run

	cfg      readerConfig
	proven   *sharedAttempt[uint64] // rounds of linearizable reads
	unproven *sharedAttempt[uint64] // rounds of reads in mode "leader"
	applied  wait.Broadcast         // fires when an entry was applied
	fresh    freshness
	heard    atomic.Bool    // see Heard
	asked    atomic.Bool    // somebody asked for the age since the last proof
	wanted   wait.Broadcast // fires when asked becomes true
	asking   sync.Map       // addresses with an open question for the term
	rounds   *prometheus.CounterVec
}

// newReader returns a reader. Run must be called before anything is read.
func newReader(cfg readerConfig) *reader {
	r := &reader{cfg: cfg, rounds: promauto.With(cfg.Metrics).NewCounterVec(prometheus.CounterOpts{Name: "rollcall_store_read_rounds_total", Help: "Rounds that confirmed linearizable reads, by result."}, []string{"result"})}
	r.proven = newSharedAttempt(r.readRound)
	r.unproven = newSharedAttempt(r.indexRound)
	return r
}

// Run makes rounds, and keeps proving how old the state is, until ctx ends.
func (r *reader) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { r.proven.run(ctx) })
	running.Go(func() { r.unproven.run(ctx) })
	r.stayFresh(ctx)
}

// Calls returns the calls that other nodes make for their reads.
func (r *reader) Calls() port.Calls {
	return port.Calls{"Node.ReadIndex": port.Method(r.ReadIndex), "Node.Term": port.Method(r.Term), "Node.Fresh": port.Method(r.Fresh)}
}

// Applied wakes the reads that wait for an entry to be applied.
func (r *reader) Applied() { r.applied.Fire() }

// noLeader returns how long a caller waits for a leader: longer, in proportion, where the nodes are far apart.
func (r *reader) noLeader() time.Duration { return r.cfg.Nodes.Stretch(store.NoLeaderWait) }

// CatchUp waits until this node has what a read demands.
//
// A linearizable read needs proof that, at some moment after it began, no other leader can have acknowledged
// anything. The leader asks the voters for their terms, and a majority that still answers the leader's own term is
// that proof, since a later leader would have had to raise the term of a majority first. (raft.VerifyLeader does not
// prove it: it counts answers to messages sent before it was called, and answers of non-voters.) The read is then
// served from any node that has applied what the leader had applied when the proof began.
func (r *reader) CatchUp(ctx context.Context, read registry.Consistency) error {
	if read == registry.Stale || (read == registry.Leader && r.cfg.Leadership.Own() != nil) {
		return nil
	}
	if r.cfg.Closing.Err() != nil {
		return registry.ErrClosed
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, r.noLeader())
	defer cancel()
	rounds := r.proven
	if read == registry.Leader {
		rounds = r.unproven
	}
	index, err := rounds.join(ctx)
	if err == nil {
		err = r.waitApplied(ctx, index)
	}
	if err == nil {
		return nil
	}
	if outer.Err() != nil {
		return fmt.Errorf("%w: %w", registry.ErrGivenUp, outer.Err())
	}
	return fmt.Errorf("%v read: %w", read, registry.ErrNoLeader)
}

// waitApplied waits until this node has applied the log up to index.
func (r *reader) waitApplied(ctx context.Context, index uint64) error {
	for {
		more := r.applied.Wait()
		if r.cfg.Machine.Index() >= index {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readRound finds out, for everyone who waits, how far a linearizable read must have applied.
func (r *reader) readRound(ctx context.Context) (uint64, error) {
	index, err := r.retryRound(ctx, true)
	result := "confirmed"
	if err != nil {
		result = "failed"
	}
	r.rounds.WithLabelValues(result).Inc()
	return index, err
}

// indexRound is readRound without the proof: it returns what the node that believes it leads has applied.
func (r *reader) indexRound(ctx context.Context) (uint64, error) { return r.retryRound(ctx, false) }

func (r *reader) retryRound(ctx context.Context, verify bool) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, r.noLeader())
	defer cancel()
	for {
		changed := r.cfg.Leadership.Changed()
		index, err := r.readIndex(ctx, verify)
		if err == nil {
			return index, nil
		}
		wait.Pause(ctx, changed, store.RetryPause)
		if ctx.Err() != nil {
			return 0, err
		}
	}
}

// readIndex makes one attempt, here or at the leader.
func (r *reader) readIndex(ctx context.Context, verify bool) (uint64, error) {
	if r.cfg.Leadership.Own() != nil {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.Nodes.AttemptLimit())
		defer cancel()
		return r.leaderIndex(ctx, verify)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	leader := r.cfg.Leadership.Other()
	if leader == nil {
		return 0, registry.ErrNoLeader
	}
	defer context.AfterFunc(leader.Replaced, cancel)()
	began := time.Now()
	index, err := r.readIndexAt(ctx, r.cfg.Nodes.DialAddress(leader.ID, leader.Address), verify)
	if err == nil && verify {
		r.addProof(began, index)
	}
	return index, err
}

// leaderIndex returns how far the established leader has applied. Its own applied index covers every acknowledged
// write: those of its term are acknowledged after it applied them, older ones came before Establish.
func (r *reader) leaderIndex(ctx context.Context, verify bool) (uint64, error) {
	l := r.cfg.Leadership.Own()
	if l == nil {
		return 0, membership.ErrNotLeader
	}
	began, index := time.Now(), r.cfg.Machine.Index()
	if verify {
		if err := r.termQuorum(ctx, l.Epoch.Term); err != nil {
			return 0, err
		}
		r.addProof(began, index)
	}
	return index, nil
}

// termQuorum asks the voters for their terms and succeeds when a majority of them answers exactly term. This node
// counts if it has a vote, which a leader that is about to be removed does not. Every question is asked after the
// call began.
func (r *reader) termQuorum(ctx context.Context, term uint64) error {
	members, err := r.cfg.Members()
	if err != nil {
		return err
	}
	others, missing := readQuorum(members, raft.ServerID(r.cfg.Leadership.Self))
	answers := make(chan bool, len(others))
	for _, server := range others {
		go func() { // ends within the limits of a quick call
			t, err := r.termOf(server)
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
	case r.Raft.CurrentTerm() != term || r.Raft.State() != raft.Leader:
		return membership.ErrNotLeader
	}
	return nil
}

// readQuorum returns the voters to ask besides this node, and how many of them must agree with it to make a majority
// of all voters. At the end it checks that this node still agrees with itself.
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

// IndexReply answers ReadIndex.
type IndexReply struct {
	Answer port.Outcome
	Index  uint64
}

// ReadIndex returns how far the leader has applied; with verify, only after proof that it leads.
func (r *reader) ReadIndex(verify bool) IndexReply {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.Nodes.AttemptLimit())
	defer cancel()
	index, err := r.leaderIndex(ctx, false)
	if err == nil && verify {
		index, err = r.proven.join(ctx) // followers' rounds join the leader's own: one proof serves all nodes
	}
	if err != nil {
		return IndexReply{Answer: port.NotLeader}
	}
	return IndexReply{Index: index}
}

func (r *reader) readIndexAt(ctx context.Context, address string, verify bool) (uint64, error) {
	reply, err := port.Invoke[IndexReply](ctx, r.cfg.Nodes, address, "Node.ReadIndex", verify)
	if err != nil {
		return 0, err
	}
	if reply.Answer != port.OK {
		return 0, fmt.Errorf("%s: %w", address, membership.ErrNotLeader)
	}
	return reply.Index, nil
}

// TermReply answers Term.
type TermReply struct {
	ServerID string
	Term     uint64
}

// Term returns the node's current term.
func (r *reader) Term(struct{}) TermReply {
	return TermReply{ServerID: r.cfg.Leadership.Self, Term: r.Raft.CurrentTerm()}
}

// termOf asks a voter for its term. Only one question per voter is open at a time: a node that hangs would collect
// them by the thousand, and the answers of the others make the majority.
func (r *reader) termOf(server raft.Server) (uint64, error) {
	address := r.cfg.Nodes.AddressOf(server)
	if _, busy := r.asking.LoadOrStore(address, struct{}{}); busy {
		return 0, errors.New("an earlier question is still open")
	}
	defer r.asking.Delete(address)
	reply, err := port.Invoke[TermReply](context.Background(), r.cfg.Nodes, address, "Node.Term", struct{}{})
	if err == nil && reply.ServerID != string(server.ID) {
		err = &port.OtherNodeError{Asked: string(server.ID), Replied: reply.ServerID, Address: address}
	}
	return reply.Term, err
}

// addProof keeps a proof that this node has obtained.
func (r *reader) addProof(at time.Time, index uint64) {
	r.fresh.addProof(at, index, r.cfg.Machine.Index())
}

// sharedAttempt lets all callers that wait for the same value share one attempt to get it. A caller is served by an
// attempt that begins after it joined, never by the one in progress: that is what makes a shared read round
// linearizable.
type sharedAttempt[T any] struct {
	attempt func(context.Context) (T, error)

	mu      sync.Mutex
	next    *sharedRound[T]
	arrived chan struct{} // holds one token while next is not nil
}

type sharedRound[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func newSharedAttempt[T any](attempt func(context.Context) (T, error)) *sharedAttempt[T] {
	return &sharedAttempt[T]{attempt: attempt, arrived: make(chan struct{}, 1)}
}

// join waits for the next attempt.
func (r *sharedAttempt[T]) join(ctx context.Context) (T, error) {
	r.mu.Lock()
	if r.next == nil {
		r.next = &sharedRound[T]{done: make(chan struct{})}
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

// run makes attempts, one at a time, until ctx ends. Callers that wait then, or come later, get the context's error.
func (r *sharedAttempt[T]) run(ctx context.Context) {
	for {
		select {
		case <-r.arrived:
		case <-ctx.Done():
			r.close(ctx.Err())
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

// close makes the next round fail at once.
func (r *sharedAttempt[T]) close(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &sharedRound[T]{done: make(chan struct{})}
	}
	r.next.err = err
	close(r.next.done)
}

// maxPending bounds the proofs whose entries this node has not applied yet. Further ones are
// dropped, which makes the state look older than it is, never younger.
const maxPending = 128

// freshness knows how old this node's state can be. Raft's LastContact would not do: heartbeats bypass a disk that is
// slow or hangs, and entries that wait for it.
type freshness struct {
	mu      sync.Mutex
	since   time.Time // start of the newest proof whose index is applied; zero if there is none
	pending []proof   // proofs whose index is not applied yet, oldest first
}

// proof says that whatever was acknowledged before a time is in the log at or before an index.
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

// advance moves since to the start of the newest proof whose entries are all applied. Proofs from several leaderships
// need not be in the order of their times. The caller holds mu.
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

// newest returns the start of the newest proof whose entries are all applied, or zero.
func (f *freshness) newest(applied uint64) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance(applied)
	return f.since
}

// elapsed returns the time between two readings of this node's clock, by its monotonic or its wall clock, whichever
// is longer: the monotonic one stands still while the machine sleeps, and the wall clock may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(0, to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
