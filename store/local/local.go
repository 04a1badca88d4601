package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// Open opens the data directory and loads what it holds. It serves no call before Run.
func Open(cfg store.Config) (*Store, error) {
	cfg.SetDefaults()
	s := &Store{
		cfg:      cfg,
		log:      cfg.Log,
		clock:    expiry.Clock{World: cfg.World},
		started:  make(chan struct{}),
		wake:     make(chan struct{}, 1),
		asked:    make(chan struct{}),
		fatal:    make(chan error, 1),
		next:     newFlush(),
		refusals: make(map[string]*Refusal),
	}
	s.closing, s.stop = context.WithCancel(context.Background())
	if err := s.open(); err != nil {
		s.stop()
		return nil, err
	}
	s.metrics = newLocalMetrics(s)
	s.changes = store.NewChangeCounter(cfg.Metrics, store.NewPanics(cfg.Log, cfg.Metrics))
	s.changes.Skip(s.view.Load())
	return s, nil
}

func (s *Store) open() (err error) {
	if s.id, err = disk.OpenIdentity(s.cfg.DataDir, disk.Owner{Mode: disk.ModeAP, Node: s.cfg.Node, Datacenter: s.cfg.Datacenter, Reads: codec.Newest, World: s.cfg.World}); err != nil {
		return err
	}
	if s.disk, err = openRegistryFile(s.cfg.DataDir); err != nil {
		return err
	}
	s.disk.slow.Around = s.cfg.Test.Write
	s.SetSyncDelay(s.cfg.Test.SyncDelay)
	if err := s.load(); err != nil {
		return errors.Join(err, s.disk.close())
	}
	return nil
}

// load makes the registry from what the disk has, and reserves the indexes of this start.
func (s *Store) load() (err error) {
	if s.registry, err = s.disk.load(); err != nil {
		return err
	}
	s.levels.rise = codec.LevelRise{LevelPolicy: s.cfg.Upgrade, Fresh: s.disk.level == 0}
	s.levels.writes.Store(uint32(cmp.Or(s.disk.level, codec.Oldest)))
	s.registry.SetLevel(byte(s.levels.writes.Load()))
	s.registry.Configure(s.cfg.Settings)
	s.registry.Doubt()
	s.registry.WithoutConsensus()
	s.establish()
	s.publish()
	f := s.registry.FreezeSince(s.registry.View().Index())
	s.flushed, s.written = f.Index, f.Clock.Lease
	return s.disk.write(saved{frozen: f, after: f.Index, level: s.level()})
}

// Identity returns the node's unique name from its data directory, and the number of this start.
func (s *Store) Identity() (serverID string, boot uint64) { return s.id.ServerID, s.id.Boot }

// Run serves until ctx ends; it then writes what is not on disk yet and returns nil. An error of the disk ends it
// too. If ctx has ended before, it only closes and does not call Copy.
//
// It performs operations from its beginning on, so that nothing that clients and other nodes send is lost while Copy
// is at work. Leases end only when Copy is done and every client has had time to renew.
func (s *Store) Run(ctx context.Context) error {
	inner, stop := context.WithCancel(context.Background())
	defer stop()
	s.admitOperations()
	var tasks sync.WaitGroup
	if ctx.Err() == nil {
		for _, task := range []func(context.Context){s.runClock, s.runSaving, s.serve} {
			tasks.Go(func() { task(inner) })
		}
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-s.fatal:
		s.log.Error("this node stops", "err", err)
	}
	s.refuseOperations()
	stop()
	tasks.Wait()
	if err == nil {
		select {
		case err = <-s.fatal: // from the last write before the stop: the disk cannot be trusted with another one
			s.log.Error("this node failed while it stopped", "err", err)
		default:
		}
	}
	return s.close(err)
}

// admitOperations starts to admit operations.
func (s *Store) admitOperations() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registry.GraceEachEpoch()
	s.clock.Start(s.registry.Clock().Lease, time.Now())
	s.serving = true
	close(s.started)
}

// refuseOperations stops admitting operations, and ends the wait for changes.
func (s *Store) refuseOperations() {
	s.mu.Lock()
	s.serving = false
	s.mu.Unlock()
	s.stop()
	s.clock.Stop()
}

// close writes what is left, if the disk can still be trusted, and ends the calls that wait for that.
func (s *Store) close(err error) error {
	if err == nil {
		err = s.save(true)
	}
	s.next.finish(err)
	return errors.Join(err, s.disk.close())
}

// establish makes this node its own leader, in the epoch of its boot: leases get grace from now on. The caller holds
// mu.
func (s *Store) establish() {
	epoch := registry.Epoch{Term: s.id.Boot, Index: 1}
	s.registry.Establish(epoch, fmt.Sprintf("%s-%d", s.id.ServerID, s.id.Boot))
	now := s.registry.Clock().Lease
	s.reign.Store(expiry.NewReign(epoch, now, s.registry.View()))
}

// serve makes the node ready and then ends leases until ctx ends.
func (s *Store) serve(ctx context.Context) {
	if err := s.cfg.Copy(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("could not take over what the other nodes have: serving what is here", "err", err)
	}
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	s.establish()
	s.publish()
	s.mu.Unlock()
	s.ready.Store(true)
	s.log.Info("ready", "instances", s.view.Load().Len(), "boot", s.id.Boot)
	expiry.NewEvictor(s.evictionEnv()).Run(ctx)
}

// evictionEnv returns what the evictor needs.
func (s *Store) evictionEnv() expiry.EvictorEnv {
	return expiry.EvictorEnv{
		Epoch: s.reign.Load().Epoch,
		Clock: func() (int64, int) { return s.clock.Read(time.Now()) },
		// No other node decides, so this node's knowledge is up to date even after a stall.
		Confirm:  func(context.Context) bool { return true },
		View:     s.view.Load,
		Expired:  s.expired,
		Ending:   s.ending,
		Owner:    s.owner,
		Spares:   s.cfg.Spares,
		Apply:    s.applyOwn,
		Draw:     rand.IntN,
		Interval: s.cfg.EvictionInterval,
		Upstream: s.cfg.EvictionTimer,
		Log:      s.log,
		Metrics:  s.metrics.eviction,
	}
}

func (s *Store) expired(now int64, limit int) []registry.EvictItem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(s.registry.Expired(now, limit), func(item registry.EvictItem) bool {
		return s.paused(registry.Evict{Items: []registry.EvictItem{item}})
	})
}

func (s *Store) ending(now int64) []registry.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(s.registry.Ending(now), s.paused)
}

func (s *Store) owner(h registry.Handle) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registry.Owner(h)
}

// publish shows the current state to readers. The caller holds mu, so views are published in order.
func (s *Store) publish() {
	v := s.registry.View()
	s.view.Store(v)
	switch {
	case s.changes == nil: // the store is being opened
	case s.ready.Load():
		s.changes.Count(v)
	default:
		s.changes.Skip(v)
	}
	s.watchers.Publish(v)
}

// runClock keeps the lease clock going, in the state too.
func (s *Store) runClock(ctx context.Context) {
	tick := time.NewTicker(expiry.ClockInterval)
	defer tick.Stop()
	slow := time.NewTicker(time.Second)
	defer slow.Stop()
	for {
		select {
		case now := <-tick.C:
			s.tick(now)
		case now := <-slow.C:
			s.riseRound(now)
			s.reign.Load().Grow(s.leaseTime())
		case <-ctx.Done():
			return
		}
	}
}

func (s *Store) tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		return
	}
	stamp := s.stamp(now)
	s.registry.Advance(stamp)
	s.publish()
	s.clock.Observe(stamp.Lease)
	if stamp.Lease-s.written >= renewalsAge.Milliseconds() && s.registry.NeedsClock() {
		s.dirty = true
	}
}

// View implements registry.Service. It returns ErrNotOffered for anything but Stale.
func (s *Store) View(_ context.Context, read registry.Consistency) (*registry.View, error) {
	if read != registry.Stale {
		return nil, fmt.Errorf("%v read: %w", read, registry.ErrNotOffered)
	}
	return s.view.Load(), nil
}

// Changes implements registry.Service.
func (s *Store) Changes(ctx context.Context, after registry.Index, which registry.Selector) (registry.Changes, error) {
	return store.AwaitChanges(ctx, s.closing, &s.watchers, s.view.Load, after, which)
}

// Health implements registry.Service. No node leads. Quorum is true as soon as the node is ready, because it needs
// nothing but itself to serve. Suspended means that no lease can end now: the node is not ready, or all leases are
// still within the grace they got when it became ready. Clock tells other nodes how old renewals are.
func (s *Store) Health() registry.Health {
	// After a pause of this node the sender may run before the clock ticks: by the old reading, a lease that ended
	// meanwhile would look young.
	if now := time.Now(); s.clock.Stands(now) {
		func() {
			s.mu.Lock()
			defer s.mu.Unlock() // also if a rule panics
			s.stamp(now)
		}()
	}
	ready := s.ready.Load()
	return registry.Health{Ready: ready, Quorum: ready, Age: s.cfg.Age(), Suspended: s.suspended(), Clock: s.clock.Glance()}
}

func (s *Store) suspended() bool { return !s.ready.Load() || s.reign.Load().Young() }

// leaseTime returns the newest view and the lease clock (ms).
func (s *Store) leaseTime() (*registry.View, int64) {
	now, _ := s.clock.Read(time.Now())
	return s.view.Load(), now
}

// SetSyncDelay slows each write to the disk by the given time from now on. 0 ends the delay.
func (s *Store) SetSyncDelay(by time.Duration) { s.disk.slow.Set(by) }
