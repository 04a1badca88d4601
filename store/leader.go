package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const (
	// enqueueTimeout bounds the wait for a place in Raft's own queue.
	enqueueTimeout = time.Second
	// establishTimeout is how long a new leader tries to commit its first entry before it gives
	// leadership to somebody else.
	establishTimeout = 10 * time.Second
	// tickAge is how old the last entry may get while leases exist, before the leader writes an
	// empty one: followers and the next leader learn the lease clock from entries.
	tickAge = time.Second
	// evictionBatch bounds one Evict entry.
	evictionBatch = 1000
)

var errNotLeader = errors.New("this node does not lead")

// leadership is the time between Establish and the loss of leadership. Only within it this node
// proposes entries, confirms reads and evicts.
type leadership struct {
	epoch registry.Epoch
	ended context.Context
}

// leaderView is who leads, as Raft told this node.
type leaderView struct {
	id      string
	address string
	gone    context.Context // ends when somebody else leads, or nobody
	leave   context.CancelFunc
}

// watchLeader keeps s.leader up to date.
func (s *Raft) watchLeader(ctx context.Context) {
	seen := make(chan raft.Observation, 16)
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	s.raft.RegisterObserver(observer)
	defer s.raft.DeregisterObserver(observer)
	// Observations may be dropped when several come at once, so a look now and then is needed too.
	tick := time.NewTicker(s.cfg.HeartbeatTimeout / 2)
	defer tick.Stop()
	for {
		s.noteLeader()
		select {
		case <-seen:
		case <-tick.C:
		case <-ctx.Done():
			if v := s.leader.Swap(nil); v != nil {
				v.leave()
			}
			return
		}
	}
}

func (s *Raft) noteLeader() {
	address, id := s.raft.LeaderWithID()
	old := s.leader.Load()
	switch {
	case old == nil && id == "", old != nil && old.id == string(id) && old.address == string(address):
		return
	case id == "":
		s.leader.Store(nil)
		s.log.Warn("no leader")
	default:
		gone, leave := context.WithCancel(context.Background())
		s.leader.Store(&leaderView{id: string(id), address: string(address), gone: gone, leave: leave})
		s.log.Info("leader", "node", nameOf(string(id)))
	}
	if old != nil {
		old.leave()
	}
	s.changed.fire()
}

// followNotify begins and ends leaderships as Raft tells. Two "true" in a row mean that leadership
// was lost and won again in between.
func (s *Raft) followNotify(ctx context.Context) {
	end := func() {}
	defer func() { end() }()
	for {
		select {
		case leads := <-s.notify:
			end()
			end = func() {}
			if leads {
				end = s.beginLeadership(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// beginLeadership runs a leadership until the returned function is called, which waits for its end.
func (s *Raft) beginLeadership(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serveAsLeader(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// serveAsLeader establishes this node as leader and does a leader's work until ctx ends.
func (s *Raft) serveAsLeader(ctx context.Context) {
	l, base, err := s.establish(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("could not establish leadership, passing it on", "err", err)
			if err := waitFuture(s.raft.LeadershipTransfer(), establishTimeout); err != nil {
				s.log.Warn("leadership was not handed over", "err", err)
			}
		}
		return
	}
	s.clock.start(base.Lease, time.Now())
	s.lead.Store(l)
	s.changed.fire()
	s.metrics.elections.Inc()
	s.metrics.leads.Set(1)
	s.log.Info("leading", "term", l.epoch.Term, "epoch", l.epoch.Index)
	defer func() {
		s.lead.Store(nil)
		s.clock.stop()
		s.changed.fire()
		s.metrics.leads.Set(0)
		s.log.Info("no longer leading", "term", l.epoch.Term)
	}()
	s.work(ctx, l)
}

// establish commits the first entry of a leadership: only when it was applied does this node know
// everything that earlier leaders acknowledged.
func (s *Raft) establish(ctx context.Context) (*leadership, registry.Stamp, error) {
	entry := fsm.AppendEstablish(nil, fsm.Establish{Node: s.id.ServerID, Cluster: s.clusterID()})
	applied, err := s.applyEntry(ctx, entry, establishTimeout)
	if err != nil {
		return nil, registry.Stamp{}, fmt.Errorf("establish leadership: %w", err)
	}
	if now := s.raft.CurrentTerm(); now != applied.Epoch.Term {
		return nil, registry.Stamp{}, fmt.Errorf("establish leadership: the term is %d already, the entry is of term %d", now, applied.Epoch.Term)
	}
	return &leadership{epoch: applied.Epoch, ended: ctx}, applied.Clock, nil
}

// work is what a leader does beside answering: it keeps the lease clock going, ends leases, and
// makes newcomers voters.
func (s *Raft) work(ctx context.Context, l *leadership) {
	clock := time.NewTicker(clockInterval)
	defer clock.Stop()
	eviction := time.NewTicker(s.cfg.EvictionInterval)
	defer eviction.Stop()
	members := time.NewTicker(time.Second)
	defer members.Stop()
	evictor := evictor{s: s, epoch: l.epoch}
	promoter := promoter{s: s}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-clock.C:
			s.clock.read(now)
			if s.machine.View().Len() > 0 && now.UnixNano()-s.proposed.Load() > int64(tickAge) {
				s.tick(ctx)
			}
		case <-eviction.C:
			evictor.round(ctx)
		case <-members.C:
			promoter.round(ctx)
		}
	}
}

// tick commits an empty entry. A failure needs no words: leadership ends by itself then.
func (s *Raft) tick(ctx context.Context) bool {
	_, err := s.proposeEntry(ctx)
	return err == nil
}

// evictor ends leases for one leadership.
type evictor struct {
	s        *Raft
	epoch    registry.Epoch
	believed int // stalls of the clock up to which this node's knowledge was confirmed
}

// round evicts what is due. After a stall (a pause of the process, a new leadership) it first makes
// sure, by a committed entry, that this node still leads and has applied what came in between.
func (e *evictor) round(ctx context.Context) {
	now, stalls := e.s.clock.read(time.Now())
	if stalls != e.believed {
		if e.s.tick(ctx) {
			e.believed = stalls
		}
		return
	}
	items := e.s.machine.Expired(now, evictionBatch)
	if len(items) == 0 {
		return
	}
	results, err := e.s.Apply(ctx, registry.FromClient, registry.Evict{Epoch: e.epoch, Items: items})
	if err != nil {
		e.s.log.Warn("eviction was not committed", "leases", len(items), "err", err)
		return
	}
	if n := results[0].Count; n > 0 {
		e.s.metrics.evicted.Add(float64(n))
		e.s.log.Info("evicted", "leases", n)
	}
}

// stamp is the time that an entry carries.
func (s *Raft) stamp() registry.Stamp {
	now := time.Now()
	lease, _ := s.clock.read(now)
	return registry.Stamp{Lease: lease, Wall: now.UnixMilli()}
}

// proposeEntry commits one entry with batches, as the established leader. Errors that wrap
// errNotSent are certain; after any other nobody knows.
func (s *Raft) proposeEntry(ctx context.Context, batches ...[]byte) ([]fsm.BatchResult, error) {
	if s.lead.Load() == nil {
		return nil, fmt.Errorf("%w: %w", errNotSent, errNotLeader)
	}
	applied, err := s.applyEntry(ctx, fsm.AppendWrite(nil, s.stamp(), batches...), answerWait)
	if err != nil {
		return nil, err
	}
	if len(applied.Batches) != len(batches) {
		return nil, fmt.Errorf("entry with %d batches has %d answers", len(batches), len(applied.Batches))
	}
	return applied.Batches, nil
}

// applyEntry hands an entry to Raft and waits for it.
func (s *Raft) applyEntry(ctx context.Context, entry []byte, limit time.Duration) (fsm.Applied, error) {
	s.proposed.Store(time.Now().UnixNano())
	s.metrics.entries.Inc()
	f := s.raft.Apply(entry, enqueueTimeout)
	done := make(chan error, 1)
	go func() { done <- f.Error() }() // may never end if Raft shuts down meanwhile
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
	switch r := f.Response().(type) {
	case fsm.Applied:
		return r, nil
	case error:
		return fsm.Applied{}, r
	}
	return fsm.Applied{}, fmt.Errorf("entry answered by %T", f.Response())
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
	limit := b.sent
	if limit.IsZero() {
		limit = time.Now()
	}
	ctx, cancel := context.WithDeadline(ctx, limit.Add(answerWait))
	defer cancel()
	if s.lead.Load() != nil {
		results, err := s.proposeEntry(ctx, b.encoded)
		if err != nil {
			return fsm.BatchResult{}, err
		}
		return results[0], nil
	}
	leader := s.leader.Load()
	if leader == nil || leader.id == s.id.ServerID {
		return fsm.BatchResult{}, fmt.Errorf("%w: %w", errNotSent, registry.ErrNoLeader)
	}
	defer context.AfterFunc(leader.gone, cancel)()
	address := s.peers.dialAddress(leader.id, leader.address)
	if err := s.peers.reach(ctx, address, b.deadline()); err != nil {
		return fsm.BatchResult{}, err
	}
	s.metrics.forwarded.Inc()
	return s.commitAt(ctx, address, b.encoded)
}
