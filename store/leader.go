package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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
)

var errNotLeader = errors.New("this node does not lead")

// leadership is the time between Establish and the loss of leadership. Only within it this node
// proposes entries, confirms reads and evicts.
type leadership struct {
	lost        context.Context // ends with it
	epoch       registry.Epoch
	established int64       // lease clock, ms
	began       time.Time   // from when on its tenure counts
	young       atomic.Bool // no lease can end yet, see allInGrace
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
	l, err := s.establish(ctx)
	for ; err != nil; l, err = s.establish(ctx) {
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("could not establish leadership, passing it on", "err", err)
		if err := waitFuture(ctx, s.raft.LeadershipTransfer(), establishTimeout); err != nil {
			s.log.Warn("leadership was not handed over, trying again to establish it", "err", err)
		}
		select { // it ends soon, if it was handed over
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
	s.clock.start(l.established, time.Now())
	l.young.Store(allInGrace(s.machine.View(), l.established, l.established))
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
func (s *Raft) establish(ctx context.Context) (*leadership, error) {
	first := fsm.AppendEstablish(nil, fsm.Establish{Node: s.id.ServerID, Cluster: s.clusterID(), Settings: &s.cfg.Settings})
	// What is committed already is applied first, a whole log after a restart: Raft has no place meanwhile.
	applied, err := s.begin(first, establishTimeout).wait(ctx, establishTimeout)
	if err != nil {
		return nil, fmt.Errorf("establish leadership: %w", err)
	}
	if now := s.raft.CurrentTerm(); now != applied.Epoch.Term {
		return nil, fmt.Errorf("establish leadership: the term is %d already, the entry is of term %d", now, applied.Epoch.Term)
	}
	return &leadership{lost: ctx, epoch: applied.Epoch, established: applied.Clock.Lease, began: time.Now()}, nil
}

// work is what a leader does beside answering: it keeps the lease clock going, ends leases and sessions,
// and makes newcomers voters.
func (s *Raft) work(ctx context.Context, l *leadership) {
	var ending sync.WaitGroup
	defer ending.Wait()
	ending.Go(func() { newEvictor(s.evictionEnv(l)).run(ctx) })
	ending.Go(func() { (&coordinator{coordinationEnv: s.coordinationEnv()}).run(ctx) })
	clock := time.NewTicker(clockInterval)
	defer clock.Stop()
	slow := time.NewTicker(time.Second)
	defer slow.Stop()
	promoter := promoter{s: s}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-clock.C:
			s.clock.read(now)
			// An idle cluster writes nothing, and the clock stands still.
			if s.machine.NeedsClock() && now.UnixNano()-s.proposed.Load() > int64(tickAge) {
				s.tick(ctx)
			}
		case <-slow.C:
			l.grow(s.leaseTime())
			promoter.round(ctx)
		}
	}
}

// evictionEnv is what the evictor of a leadership needs.
func (s *Raft) evictionEnv(l *leadership) evictionEnv {
	return evictionEnv{
		epoch:   l.epoch,
		clock:   func() (int64, int) { return s.clock.read(time.Now()) },
		confirm: s.tick,
		view:    s.machine.View,
		expired: s.machine.Expired,
		ending:  s.machine.Ending,
		owner:   s.machine.Owner,
		spares:  s.cfg.Spares,
		apply: func(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
			return s.Apply(ctx, registry.FromClient, ops...)
		},
		draw:     rand.IntN,
		interval: s.cfg.EvictionInterval,
		upstream: s.cfg.EvictionTimer,
		log:      s.log,
		metrics:  s.metrics.eviction,
	}
}

// grow notices, once, that leases can end.
func (l *leadership) grow(v *registry.View, now int64) {
	if l.young.Load() && !allInGrace(v, l.established, now) {
		l.young.Store(false)
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
