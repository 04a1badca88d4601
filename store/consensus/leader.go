package consensus

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// establishTimeout is how long a new leader tries to commit its first entry before it hands leadership to another
// node.
const establishTimeout = 10 * time.Second

// WhileLeading calls do each time this node is established as leader, with the leadership's epoch and a context that
// ends with the leadership, and waits for do to return before the next call. WhileLeading returns when ctx ends or
// the node stops.
func (s *Raft) WhileLeading(ctx context.Context, do func(context.Context, registry.Epoch)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	s.leadership.WhileLeading(ctx, do)
}

// followNotify starts and stops leaderships as Raft reports them. Two "true" in a row mean that leadership was lost
// and won again in between.
func (s *Raft) followNotify(ctx context.Context) {
	stop := func() {}
	defer func() { stop() }()
	for {
		select {
		case leads := <-s.notify:
			stop()
			stop = func() {}
			if leads {
				leading, end := context.WithCancel(ctx)
				done := make(chan struct{})
				go func() {
					defer close(done)
					s.serveAsLeader(leading)
				}()
				stop = func() {
					end()
					<-done
				}
			}
		case <-ctx.Done():
			return
		}
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
		if err := raftio.Wait(ctx, s.raft.LeadershipTransfer(), establishTimeout); err != nil {
			s.log.Warn("leadership was not handed over, trying again to establish it", "err", err)
		}
		if !wait.For(ctx, time.Second) { // ends soon if leadership was handed over
			return
		}
	}
	s.clock.Start(l.Established, time.Now())
	s.leadership.Lead(l)
	s.metrics.elections.Inc()
	s.metrics.leads.Set(1)
	s.log.Info("leading", "term", l.Epoch.Term, "epoch", l.Epoch.Index)
	s.work(ctx, l)
	s.clock.Stop()
	s.metrics.leads.Set(0)
	s.log.Info("no longer leading", "term", l.Epoch.Term)
}

// establish commits the first entry of a leadership: only once it is applied does this node know everything that
// earlier leaders acknowledged.
func (s *Raft) establish(ctx context.Context) (*membership.Leadership, error) {
	e := fsm.Establish{Node: s.serverID(), Cluster: s.identity.Cluster(), Settings: &s.cfg.Settings}
	if s.machine.View().Epoch() == "" {
		// Either the cluster is new, or this node has yet to apply its log.
		if err := raftio.Wait(ctx, s.raft.Barrier(establishTimeout), establishTimeout); err != nil {
			return nil, fmt.Errorf("establish leadership: %w", err)
		}
		if s.machine.View().Epoch() == "" {
			e.Level = s.members.FoundingLevel(ctx)
		}
	}
	first := fsm.AppendEstablish(nil, s.machine.Level(), e)
	// Raft first applies what is committed already, a whole log after a restart, and has no room for entries
	// meanwhile.
	applied, err := s.proposer.Start(first, establishTimeout).Wait(ctx, 2*establishTimeout)
	if err != nil {
		return nil, fmt.Errorf("establish leadership: %w", err)
	}
	if now := s.raft.CurrentTerm(); now != applied.Epoch.Term {
		return nil, fmt.Errorf("establish leadership: the term is %d already, the entry is of term %d", now, applied.Epoch.Term)
	}
	return membership.NewLeadership(expiry.NewReign(applied.Epoch, applied.Clock.Lease, s.machine.View()), ctx, time.Now()), nil
}

// work is what a leader does beside serving calls: it keeps the lease clock going, ends leases and sessions, and
// manages votes and levels.
func (s *Raft) work(ctx context.Context, l *membership.Leadership) {
	var ending sync.WaitGroup
	defer ending.Wait()
	ending.Go(func() { expiry.NewEvictor(s.evictionEnv(l)).Run(ctx) })
	ending.Go(func() { expiry.NewCoordinator(s.coordinationEnv()).Run(ctx) })
	ending.Go(func() { // it asks the other nodes, which may take a while if one does not respond
		promoter, raiser := s.members.Promoter(), s.members.Raiser()
		wait.Every(ctx, time.Second, func(now time.Time) {
			promoter.Round(ctx)
			raiser.Round(ctx, now)
		})
	})
	ending.Go(func() { s.compareReplicas(ctx) })
	clock := time.NewTicker(expiry.ClockInterval)
	defer clock.Stop()
	slow := time.NewTicker(time.Second)
	defer slow.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-clock.C:
			s.clock.Read(now)
			// An idle cluster writes one entry a minute (see below); otherwise its clock stands still.
			if s.machine.NeedsClock() && now.Sub(s.proposer.Newest()) > expiry.TickAge {
				s.tick(ctx)
			}
		case now := <-slow.C:
			l.Grow(s.leaseTime())
			if membership.DigestsDue(s.machine.View().Stamp().Wall, s.cfg.World.Wall(now).UnixMilli()) {
				s.tick(ctx) // so that replicas of an idle cluster are compared, too
			}
		}
	}
}

// evictionEnv returns what the evictor of a leadership needs.
func (s *Raft) evictionEnv(l *membership.Leadership) expiry.EvictorEnv {
	return expiry.EvictorEnv{
		Epoch:   l.Epoch,
		Clock:   func() (int64, int) { return s.clock.Read(time.Now()) },
		Confirm: s.tick,
		View:    s.machine.View,
		Expired: s.machine.Expired,
		Ending:  s.machine.Ending,
		Owner:   s.machine.Owner,
		Spares:  s.cfg.Spares,
		Apply: func(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
			return s.Apply(ctx, registry.FromClient, ops...)
		},
		Draw:     rand.IntN,
		Interval: s.cfg.EvictionInterval,
		Upstream: s.cfg.EvictionTimer,
		Log:      s.log,
		Metrics:  s.metrics.eviction,
	}
}

// tick commits an empty entry. It logs no failure: leadership ends without help then.
func (s *Raft) tick(ctx context.Context) bool {
	e, err := s.proposer.Propose()
	if err == nil {
		_, err = e.Results(ctx)
	}
	return err == nil
}

// coordinationEnv returns what the coordinator of a leadership needs.
func (s *Raft) coordinationEnv() expiry.CoordinatorEnv {
	return expiry.CoordinatorEnv{
		Clock:   func() (int64, int) { return s.clock.Read(time.Now()) },
		Confirm: s.tick,
		Due:     s.machine.KVDue,
		Apply:   s.Coordination().Apply,
		Log:     s.log,
		Metrics: s.metrics.coordination,
	}
}
