package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Apply implements registry.Service.
func (s *Raft) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	items := make([]fsm.Item, len(ops))
	patient := len(ops) > 0
	renewals, unknown := true, false
	for i, op := range ops {
		items[i] = fsm.Item{Origin: origin, Op: s.shorten(op)}
		patient = patient && s.repeatsCheck(op)
		renew, ok := items[i].Op.(registry.Renew)
		renewals = renewals && ok
		unknown = unknown || ok && !s.finds(renew)
	}
	if renewals && unknown {
		return s.renewUnknown(ctx, origin, ops)
	}
	return s.commitOps(ctx, items, ops, patient)
}

func (s *Raft) commitOps(ctx context.Context, items []fsm.Item, ops []registry.Op, patient bool) ([]registry.Result, error) {
	results, err := s.applyItems(ctx, items, patient)
	if err != nil {
		return nil, fmt.Errorf("apply %d operations: %w", len(ops), err)
	}
	return s.resendByName(ctx, items, ops, results.registry)
}

// finds says that this node's copy has the instance of a renewal.
func (s *Raft) finds(renew registry.Renew) bool {
	if renew.Handle != (registry.Handle{}) {
		return true
	}
	_, ok := s.machine.View().Find(renew.Key)
	return ok
}

// renewUnknown answers renewals, some of them of instances that this node does not know. Anybody can send
// those without end, so the log does not get them: they are not found if that is what a linearizable read says.
// The others are committed.
func (s *Raft) renewUnknown(ctx context.Context, origin registry.Origin, ops []registry.Op) ([]registry.Result, error) {
	if err := s.catchUp(ctx, registry.Linearizable); err != nil {
		return nil, fmt.Errorf("renew %d instances: %w", len(ops), err)
	}
	results := make([]registry.Result, len(ops))
	var items []fsm.Item
	var known []registry.Op
	var where []int
	for i, op := range ops {
		if renew := op.(registry.Renew); s.machine.Ignores(origin, renew) {
			results[i] = registry.Result{Outcome: registry.NotFound}
			continue
		}
		items = append(items, fsm.Item{Origin: origin, Op: s.shorten(op)})
		known, where = append(known, op), append(where, i)
	}
	if len(known) == 0 {
		return results, nil
	}
	committed, err := s.commitOps(ctx, items, known, false)
	if err != nil {
		return nil, err
	}
	for i, r := range committed {
		results[where[i]] = r
	}
	return results, nil
}

// shorten replaces the name of a renewal by the lease's handle, where this node knows one. What another
// server renewed stays as it is: its record has more to say than a handle has room for.
func (s *Raft) shorten(op registry.Op) registry.Op {
	renew, ok := op.(registry.Renew)
	if !ok || renew.Overridden != registry.Unknown || renew.Life != 0 || renew.Age != 0 {
		return op
	}
	if l, ok := s.machine.View().Find(renew.Key); ok {
		renew.Handle = l.Handle
		return renew
	}
	return op
}

// resendByName repeats, once and by name, the renewals whose handle turned out to be dead: this
// node's view was behind.
func (s *Raft) resendByName(ctx context.Context, items []fsm.Item, ops []registry.Op, results []registry.Result) ([]registry.Result, error) {
	var again []fsm.Item
	var where []int
	for i, r := range results {
		if r.Outcome == registry.GoneHandle {
			again = append(again, fsm.Item{Origin: items[i].Origin, Op: ops[i]})
			where = append(where, i)
		}
	}
	if len(again) == 0 {
		return results, nil
	}
	second, err := s.applyItems(ctx, again, false)
	if err != nil {
		return nil, fmt.Errorf("apply %d operations by name: %w", len(again), partly(len(results)-len(again), err))
	}
	results = slices.Clone(results) // the state machine remembers the other
	for i, r := range second.registry {
		results[where[i]] = r
	}
	return results, nil
}

// applyItems commits items in order, in as few batches as their size allows. None is committed if one
// is too large. Patient ones wait for company.
func (s *Raft) applyItems(ctx context.Context, items []fsm.Item, patient bool) (answers, error) {
	var few [8]int // most calls are one heartbeat
	sizes := few[:0]
	for i, item := range items {
		size := sizeOf(item)
		if size > maxOpBytes {
			return answers{}, fmt.Errorf("operation %d has %d bytes, at most %d are allowed: %w", i+1, size, maxOpBytes, registry.ErrTooLarge)
		}
		sizes = append(sizes, size)
	}
	commit := s.committer.commit
	if patient {
		commit = s.committer.gather
	}
	var results answers
	for len(items) > 0 {
		n, size := fit(sizes)
		part, err := commit(ctx, items[:n], size)
		if err != nil {
			return answers{}, partly(len(results.registry), err)
		}
		if n == len(items) && results.registry == nil {
			return part, nil
		}
		results.add(part)
		items, sizes = items[n:], sizes[n:]
	}
	return results, nil
}

// fit says how many operations make a batch, one at least, and their size together.
func fit(sizes []int) (n, size int) {
	for n < len(sizes) && (n == 0 || size+sizes[n] <= maxBatchBytes) {
		size += sizes[n]
		n++
	}
	return n, size
}

// partly is the error of a call of which so many operations took effect already: "no" would be wrong.
func partly(done int, err error) error {
	if done == 0 {
		return err
	}
	return fmt.Errorf("%d operations took effect, of those after them: %w (%v)", done, registry.ErrUnknownOutcome, err)
}

// sizeOf is the encoded size of an item, or a little more.
func sizeOf(item fsm.Item) int {
	if r, ok := item.Op.(registry.Renew); ok { // the most frequent one costs nothing
		return 44 + len(r.Key.App) + len(r.Key.ID) + len(item.Origin.DC)
	}
	return fsm.Size(item)
}

// gatherFor is how long a renewal waits for others at most. Sessions are renewed by the thousand, each
// for itself, long before its time is up: committed as they come, they would keep the log busy with
// entries of one or two. A write must not wait so, which is why nothing else does (see committer).
const gatherFor = 100 * time.Millisecond

// repeatsCheck says whether an operation is a heartbeat that tells of a check what this node has of it
// already, as most do: it changes nothing but the time of the last one. One that passes keeps its output.
func (s *Raft) repeatsCheck(op registry.Op) bool {
	beat, ok := op.(registry.SetCheck)
	if !ok || !beat.TTL {
		return false
	}
	c, ok := s.machine.View().CheckOn(beat.Node, beat.Check)
	return ok && c.Status == beat.Status && (c.Status == registry.Passing || c.Output == beat.Output)
}

// gather is commit for what can wait for company. Whoever comes first sets the time.
func (c *committer) gather(ctx context.Context, items []fsm.Item, size int) (answers, error) {
	if c.patience == 0 {
		return c.commit(ctx, items, size)
	}
	k := &call{items: items, size: size, done: make(chan struct{})}
	if !c.collect(k) {
		return answers{}, registry.ErrClosed
	}
	return c.await(ctx, k)
}

func (c *committer) collect(k *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if len(c.gathered) == 0 {
		time.AfterFunc(c.patience, c.release)
	}
	c.gathered = append(c.gathered, k)
	return true
}

// release queues what was gathered. From here on it has arrived: whoever waits for a leader does so as
// long as anybody else.
func (c *committer) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.gathered) == 0 {
		return // closed meanwhile
	}
	now := time.Now()
	for _, k := range c.gathered {
		k.arrived = now
	}
	c.calls = append(c.calls, c.gathered...)
	c.gathered = nil
	c.signal()
}

// stamp is the time that an entry carries.
func (s *Raft) stamp() registry.Stamp {
	now := time.Now()
	lease, _ := s.clock.read(now)
	return registry.Stamp{Lease: lease, Wall: now.UnixMilli()}
}

// entry is a log entry on its way through Raft.
type entry struct {
	future  raft.ApplyFuture
	batches int
	started time.Time
}

// propose hands an entry with batches to Raft, as the established leader, and returns without
// waiting for it: entries stand in the log in the order of the calls.
func (s *Raft) propose(batches ...[]byte) (*entry, error) {
	l := s.lead.Load()
	if l == nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, errNotLeader)
	}
	e := s.begin(fsm.AppendWrite(nil, s.stamp(), l.tenure(time.Now()), batches...), enqueueTimeout)
	e.batches = len(batches)
	return e, nil
}

// begin hands an entry to Raft, which has to find a place for it within patience.
func (s *Raft) begin(encoded []byte, patience time.Duration) *entry {
	now := time.Now()
	s.proposed.Store(now.UnixNano())
	s.metrics.entries.Inc()
	return &entry{future: s.raft.Apply(encoded, patience), started: now}
}

// results waits for the answers to an entry's batches. Errors that wrap errNotSent are certain;
// after any other nobody knows.
func (e *entry) results(ctx context.Context) ([]fsm.BatchResult, error) {
	applied, err := e.wait(ctx, answerWait)
	if err != nil {
		return nil, err
	}
	if len(applied.Batches) != e.batches {
		return nil, fmt.Errorf("entry with %d batches has %d answers", e.batches, len(applied.Batches))
	}
	return applied.Batches, nil
}

func (e *entry) wait(ctx context.Context, limit time.Duration) (fsm.Applied, error) {
	done := make(chan error, 1)
	go func() { done <- e.future.Error() }() // may never end if Raft shuts down meanwhile
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case err := <-done:
		if err != nil {
			return fsm.Applied{}, certain(err)
		}
	case <-t.C:
		return fsm.Applied{}, fmt.Errorf("entry not applied within %v", limit)
	case <-ctx.Done():
		return fsm.Applied{}, ctx.Err()
	}
	switch r := e.future.Response().(type) {
	case fsm.Applied:
		return r, nil
	case error:
		return fsm.Applied{}, r
	}
	return fsm.Applied{}, fmt.Errorf("entry answered by %T", e.future.Response())
}

// certain marks the errors of raft.Apply after which the entry is certainly not in the log.
func certain(err error) error {
	if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrEnqueueTimeout) || errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	return err
}

// submit commits a batch through whoever leads now; the time limit and a change of leader end it.
func (s *Raft) submit(ctx context.Context, b *batch) (fsm.BatchResult, error) {
	until := b.giveUpAt(time.Now())
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if l := s.lead.Load(); l != nil {
		return s.commitHere(ctx, b.encode(l.bound(until)))
	}
	leader := s.leader.Load()
	if leader == nil || leader.id == s.id.ServerID {
		return fsm.BatchResult{}, fmt.Errorf("%w: %w", errNotSent, registry.ErrNoLeader)
	}
	defer context.AfterFunc(leader.gone, cancel)()
	address := s.peers.dialAddress(leader.id, leader.address)
	before, cancel := context.WithDeadline(ctx, b.deadline())
	defer cancel()
	if err := s.peers.reach(before, address); err != nil {
		return fsm.BatchResult{}, err
	}
	t, err := s.termsOf(before, leader, address)
	if err != nil {
		return fsm.BatchResult{}, err
	}
	s.metrics.forwarded.Inc()
	res, err := s.commitAt(ctx, address, b.encode(t.bound(until)))
	if errors.Is(err, errNotLeader) || errors.Is(err, errLate) {
		s.terms.CompareAndSwap(t, nil) // it may lead again, in another leadership
	}
	return res, err
}

func (s *Raft) commitHere(ctx context.Context, encoded []byte) (fsm.BatchResult, error) {
	e, err := s.propose(encoded)
	if err != nil {
		return fsm.BatchResult{}, err
	}
	results, err := e.results(ctx)
	if err != nil {
		return fsm.BatchResult{}, err
	}
	return results[0], lateness(results[0])
}

// lateness is the error of a batch that the state machine found to be late: that copy of it certainly
// had no effect.
func lateness(res fsm.BatchResult) error {
	if res.Late {
		return fmt.Errorf("%w: %w", errNotSent, errLate)
	}
	return nil
}
