package consensus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
)

// Bounds on the courtesies of a node that stops, towards the others and itself.
const (
	handoverLimit = 2 * time.Second
	snapshotLimit = 4 * time.Second
)

// fatalClose bounds the attempt to close properly after a fatal error.
const fatalClose = 2 * time.Second

// Run serves until ctx ends; it then hands leadership over, saves a snapshot, gives every waiting caller its result
// and returns nil. A fatal error (of the disk, or a data directory that belongs elsewhere) ends it too: this node has
// then already stopped talking to the others, and the process should exit.
func (s *Raft) Run(ctx context.Context) error {
	inner, stop := context.WithCancel(context.Background())
	defer stop()
	var tasks sync.WaitGroup
	s.net.Go(s.net.Serve)
	for _, task := range []func(context.Context){
		s.disk.Watch, s.loop.Run, s.watchLog, s.followNotify, s.committer.Run, s.committer.Sweep,
		s.reader.Run, s.becomeReady, s.members.Run, s.digests.Run, s.restoreFounded,
		func(ctx context.Context) { s.leadership.Run(ctx, s.raft, s.cfg.HeartbeatTimeout/2) },
	} {
		tasks.Go(func() { task(inner) })
	}
	var err error
	select {
	case <-ctx.Done():
		s.prepareStop()
	case err = <-s.fatal:
		s.log.Error("this node stops", "err", err)
	}
	s.stop()
	stop()
	closed := make(chan error, 1)
	go func() {
		tasks.Wait()
		closed <- s.close()
	}()
	if err == nil {
		select {
		case err := <-closed:
			return err
		case err = <-s.fatal: // its cause may keep the rest from closing
			s.log.Error("this node failed while it stopped", "err", err)
		}
	}
	select {
	case <-closed:
	case <-time.After(fatalClose): // a disk that hangs would block the exit forever
	}
	return err
}

// prepareStop hands leadership over and saves a snapshot, so that the next start is quick. Both are courtesies: if
// they fail or take too long, the node stops anyway.
func (s *Raft) prepareStop() {
	if !s.handedOver.Load() {
		s.HandOver()
	}
	time.AfterFunc(snapshotLimit, s.endSaving) // when Raft shuts down, it would wait for a snapshot in progress
	if !s.unsaved.Load() {
		return
	}
	if err := raftio.Wait(context.Background(), raftio.Later(s.raft.Snapshot), snapshotLimit); err != nil {
		s.log.Info("no snapshot at shutdown", "err", err)
	}
}

// Alive returns true once Raft's main loop, which waits for the disk, has replied or received more of a snapshot, and
// the entry being applied is applied. It returns false when ctx has ended.
func (s *Raft) Alive(ctx context.Context) bool {
	if !s.loop.Alive(ctx) {
		return false
	}
	s.machine.AwaitApplied()
	return true
}

// HandOver hands leadership to another node, if this one leads, within 2 s. The node continues to serve, and does not
// try again when it stops. A failure is logged: the others elect a leader when this node stops.
func (s *Raft) HandOver() {
	s.handedOver.Store(true)
	if s.raft.State() != raft.Leader {
		return
	}
	if err := raftio.Wait(context.Background(), s.raft.LeadershipTransfer(), handoverLimit); err != nil {
		s.log.Warn("leadership was not handed over", "err", err)
	}
}

// ReloadCertificates reads the files of cluster.tls.* again, and returns the settings whose files have changed.
func (s *Raft) ReloadCertificates() (changed []string) { return s.net.ReloadCertificates() }

// close releases what open has opened. The contexts of Run give callers that still wait their results.
func (s *Raft) close() error {
	s.stop()
	var errs []error
	if s.raft != nil {
		errs = append(errs, s.raft.Shutdown().Error())
	}
	if s.nodes != nil {
		s.nodes.Close()
	}
	if s.net != nil {
		errs = append(errs, s.net.Close())
		s.net.Wait()
	}
	if s.disk != nil {
		errs = append(errs, s.disk.Close())
	}
	return errors.Join(errs...)
}

// becomeReady waits for the first linearizable read that this node could have served: from then on it serves at least
// the state of its start.
func (s *Raft) becomeReady(ctx context.Context) {
	announced := retry(ctx, s.leadership, func(ctx context.Context) error {
		if _, err := s.View(ctx, registry.Linearizable); err != nil {
			return err
		}
		if err := s.identity.Hello().Outdated(s.machine.Boot(s.serverID())); err != nil {
			s.stopOutdated(err)
			return err
		}
		if s.awaitsRestore() {
			return errNotRestored
		}
		// The state machine must know this start, so that from now on every node refuses an older copy of this node's
		// data directory.
		return s.committer.Announce(ctx)
	})
	if !announced {
		return
	}
	s.ready.Store(true)
	s.log.Info("ready", "instances", s.machine.View().Len())
	s.settings.compare()
}

// retry attempts something until it succeeds (true) or ctx ends (false). It pauses in between, but not past a change
// of the leader.
func retry(ctx context.Context, leader *membership.LeaderState, attempt func(context.Context) error) (done bool) {
	for ctx.Err() == nil {
		changed := leader.Changed()
		if attempt(ctx) == nil {
			return true
		}
		wait.Pause(ctx, changed, store.RetryPause)
	}
	return false
}
