package store

import (
	"context"
	"errors"
	"fmt"
	"time"

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
			if err := waitFuture(ctx, s.raft.LeadershipTransfer(), establishTimeout); err != nil {
				s.log.Warn("leadership was not handed over", "err", err)
			}
		}
		return
	}
	s.clock.start(base.Lease, time.Now())
	s.lead.Store(l)
	s.changed.fire()
	// At once, and not when the work below notices: until then this node's writes would be offered to
	// its own Raft, which no longer takes them.
	context.AfterFunc(ctx, func() {
		s.lead.CompareAndSwap(l, nil)
		s.changed.fire()
	})
	s.metrics.elections.Inc()
	s.metrics.leads.Set(1)
	s.log.Info("leading", "term", l.epoch.Term, "epoch", l.epoch.Index)
	s.work(ctx, l)
	s.clock.stop()
	s.metrics.leads.Set(0)
	s.log.Info("no longer leading", "term", l.epoch.Term)
}

// establish commits the first entry of a leadership: only when it was applied does this node know
// everything that earlier leaders acknowledged.
func (s *Raft) establish(ctx context.Context) (*leadership, registry.Stamp, error) {
	first := fsm.AppendEstablish(nil, fsm.Establish{Node: s.id.ServerID, Cluster: s.clusterID()})
	applied, err := s.begin(first).wait(ctx, establishTimeout)
	if err != nil {
		return nil, registry.Stamp{}, fmt.Errorf("establish leadership: %w", err)
	}
	if now := s.raft.CurrentTerm(); now != applied.Epoch.Term {
		return nil, registry.Stamp{}, fmt.Errorf("establish leadership: the term is %d already, the entry is of term %d", now, applied.Epoch.Term)
	}
	return &leadership{epoch: applied.Epoch}, applied.Clock, nil
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
	e, err := s.propose()
	if err == nil {
		_, err = e.results(ctx)
	}
	return err == nil
}
