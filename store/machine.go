package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// stateMachine feeds Raft's committed entries to the machine.
type stateMachine struct {
	s         *Raft
	snapshots *snapshotStore
	broken    error // set once; no further entry may be applied
}

// Apply implements raft.FSM. The response is an fsm.Applied or an error.
func (f *stateMachine) Apply(l *raft.Log) any {
	if f.broken != nil {
		return f.broken
	}
	applied, err := f.s.machine.Apply(l.Index, l.Term, l.Data)
	if err != nil {
		f.broken = fmt.Errorf("apply log entry %d: %w", l.Index, err)
		f.s.fail(f.broken)
		return f.broken
	}
	f.s.unsaved.Store(true)
	f.s.clock.observe(applied.Clock.Lease)
	f.publish()
	if len(applied.Touched) > 0 {
		f.s.keys.Wake(applied.Touched)
	}
	if applied.Epoch != (registry.Epoch{}) {
		f.noteSettings()
	}
	return applied
}

// Snapshot implements raft.FSM.
func (f *stateMachine) Snapshot() (raft.FSMSnapshot, error) {
	f.s.unsaved.Store(false)
	return frozen{f.s.machine.Snapshot(), f.s.saving}, nil
}

// Restore implements raft.FSM.
func (f *stateMachine) Restore(r io.ReadCloser) error {
	err := f.s.machine.Restore(r)
	if err = errors.Join(err, r.Close()); err != nil {
		f.snapshots.note(err)
		return fmt.Errorf("restore snapshot: %w", err)
	}
	f.publish()
	f.s.keys.WakeAll()
	f.noteSettings()
	return nil
}

// publish wakes those who wait for the newest state.
func (f *stateMachine) publish() {
	f.s.watchers.Publish(f.s.machine.View())
	f.s.applied.fire()
}

// noteSettings compares what an Establish brought with this node's own settings. Leaderships of the
// past, which a node goes through again when it starts, are no news: becomeReady looks afterwards.
func (f *stateMachine) noteSettings() {
	if f.s.ready.Load() {
		f.s.settings.note()
	}
}

// frozen adapts a snapshot of the machine to Raft.
type frozen struct {
	*fsm.Snapshot
	saving context.Context // ends when it has no more time
}

// Persist implements raft.FSMSnapshot.
func (f frozen) Persist(sink raft.SnapshotSink) error {
	if _, err := f.WriteTo(boundedWriter{sink, f.saving}); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (f frozen) Release() {}

// boundedWriter writes until a context ends.
type boundedWriter struct {
	io.Writer
	until context.Context
}

// Write implements io.Writer.
func (w boundedWriter) Write(b []byte) (int, error) {
	if err := w.until.Err(); err != nil {
		return 0, err
	}
	return w.Writer.Write(b)
}

// Changes implements registry.Service.
func (s *Raft) Changes(ctx context.Context, after registry.Index, which registry.Selector) (registry.Changes, error) {
	return awaitChanges(ctx, s.closing, &s.watchers, s.machine.View, after, which)
}

// awaitChanges is Service.Changes of a node that stops when closing ends.
func awaitChanges(ctx, closing context.Context, watchers *registry.Watchers, newest func() *registry.View, after registry.Index, which registry.Selector) (registry.Changes, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(closing, cancel)()
	changes, err := watchers.Await(waiting, newest, after, which)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return registry.Changes{}, registry.ErrClosed
	}
	return changes, err
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

// Leader is the name of the node that leads, as far as this node knows; "": it knows none.
func (s *Raft) Leader() string {
	if v := s.leader.Load(); v != nil {
		return nameOf(v.id)
	}
	return ""
}
