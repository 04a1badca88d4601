package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
)

// stateMachine feeds Raft's committed entries to the machine.
type stateMachine struct {
	s      *Raft
	broken error // set once; no further entry may be applied
}

// Apply implements raft.FSM. The response is an fsm.Applied or an error.
func (f *stateMachine) Apply(l *raft.Log) any {
	if f.broken != nil {
		return f.broken
	}
	before := f.s.machine.View().Stamp().Wall
	applied, err := f.s.machine.Apply(l.Index, l.Term, f.data(l))
	if err != nil {
		return f.breakOff(err)
	}
	f.follow(applied)
	f.publish()
	// the others no longer have digests for a log that is read again
	if f.s.ready.Load() && membership.DigestsDue(before, applied.Clock.Wall) {
		f.s.digests.Make(f.s.machine.Snapshot)
	}
	f.wake(applied)
	return applied
}

// ApplyBatch implements raft.BatchingFSM. A node that starts goes through its log again, and through what it has
// missed: until it is ready, it shows the commands that come together as one change. Afterwards each is applied on
// its own, because the nodes compare their states after single entries.
func (f *stateMachine) ApplyBatch(logs []*raft.Log) []any {
	responses := make([]any, len(logs))
	for from := 0; from < len(logs); {
		to := from
		for to < len(logs) && logs[to].Type == raft.LogCommand && !f.s.ready.Load() {
			to++
		}
		switch l := logs[from]; {
		case to > from:
			f.catchUp(logs[from:to], responses[from:to])
			from = to
			continue
		case l.Type == raft.LogConfiguration:
			f.StoreConfiguration(l.Index, raft.DecodeConfiguration(l.Data))
		default:
			responses[from] = f.Apply(l)
		}
		from++
	}
	return responses
}

// catchUp applies commands before this node is ready.
func (f *stateMachine) catchUp(logs []*raft.Log, responses []any) {
	entries := make([]fsm.Entry, len(logs))
	for i, l := range logs {
		entries[i] = fsm.Entry{Index: l.Index, Term: l.Term, Data: f.data(l)}
	}
	var all []fsm.Applied
	err := f.broken
	if err == nil {
		all, err = f.s.machine.ApplyAll(entries)
	}
	for i, applied := range all {
		f.follow(applied)
		responses[i] = applied
	}
	f.publish()
	for _, applied := range all {
		f.wake(applied)
	}
	for i := len(all); i < len(logs); i++ {
		responses[i] = f.breakOff(err)
	}
}

// data returns what this node applies of a command.
func (f *stateMachine) data(l *raft.Log) []byte {
	if f.s.cfg.Test.Falsify != nil {
		return f.s.cfg.Test.Falsify(l.Data)
	}
	return l.Data
}

// breakOff ends this node: no further entry may be applied.
func (f *stateMachine) breakOff(err error) error {
	if f.broken == nil {
		f.broken = fmt.Errorf("apply: %w", err)
		if e, ok := errors.AsType[*fsm.PanicError](err); ok {
			f.broken = fmt.Errorf("%w: this is a defect, and every node stops at this entry; report it, and see \"A log entry that panics\" in docs/run/node-died.md (rollcall recover --skip-entry %d)", f.broken, e.Entry)
			f.s.log.Error("a log entry panicked", "entry", e.Entry, "operation", e.Operation, "stack", string(e.Stack))
		}
		f.s.fail(f.broken)
	}
	return f.broken
}

// follow does what is due after an entry, before readers are woken.
func (f *stateMachine) follow(applied fsm.Applied) {
	f.s.unsaved.Store(true)
	if applied.Skipped {
		f.s.log.Warn("skipped a log entry, as operators have decided (rollcall recover --skip-entry)", "batches", len(applied.Batches))
	}
	if len(applied.Granted) > 0 {
		f.s.log.Warn("roles of peers got the right takeover, without which level 3 refuses what they could do before; take it from those that are not to replace or remove living instances of this datacenter (rollcall role put)", "roles", applied.Granted)
	}
	if applied.Raised {
		// Older entries may follow this one: those in flight when it was proposed.
		time.AfterFunc(establishTimeout, func() { f.s.raised.Store(f.s.machine.Index()) })
	}
	f.s.clock.Observe(applied.Clock.Lease)
	f.s.transport.Wake() // it is committed, which followers may not know
}

// wake wakes those who watch for what an entry changed.
func (f *stateMachine) wake(applied fsm.Applied) {
	if applied.Restored {
		f.s.keys.WakeAll()
	} else if len(applied.Touched) > 0 {
		f.s.keys.Wake(applied.Touched)
	}
	if applied.Epoch != (registry.Epoch{}) {
		f.compareSettings()
	}
}

// Snapshot implements raft.FSM.
func (f *stateMachine) Snapshot() (raft.FSMSnapshot, error) {
	if f.broken != nil {
		return nil, f.broken
	}
	f.s.unsaved.Store(false)
	return frozen{f.s.machine.Snapshot()}, nil
}

// Restore implements raft.FSM.
func (f *stateMachine) Restore(r io.ReadCloser) error {
	err := f.s.machine.Restore(r)
	if err = errors.Join(err, r.Close()); err != nil {
		f.s.snapshots.recordError(err)
		return fmt.Errorf("restore snapshot: %w", err)
	}
	f.publish()
	f.s.keys.WakeAll()
	f.compareSettings()
	return nil
}

// publish wakes everyone who waits for the newest state, and counts what changed. What a node replays at its start
// changed at another time, and is not counted.
func (f *stateMachine) publish() {
	v := f.s.machine.View()
	if f.s.ready.Load() {
		f.s.metrics.changes.Count(v)
	} else {
		f.s.metrics.changes.Skip(v)
	}
	f.s.watchers.Publish(v)
	f.s.reader.Applied()
}

// compareSettings compares the settings of an Establish with this node's own. Past leaderships, which a node replays
// when it starts, are no news: becomeReady compares afterwards.
func (f *stateMachine) compareSettings() {
	if f.s.ready.Load() {
		f.s.panics.Contain(store.MeasuredSettings, f.s.settings.compare)
	}
}

// frozen adapts a snapshot of the machine to Raft.
type frozen struct{ *fsm.Snapshot }

// Persist implements raft.FSMSnapshot.
func (f frozen) Persist(sink raft.SnapshotSink) error {
	if _, err := f.WriteTo(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (f frozen) Release() {}

// Changes implements registry.Service.
func (s *Raft) Changes(ctx context.Context, after registry.Index, which registry.Selector) (registry.Changes, error) {
	return store.AwaitChanges(ctx, s.closing, &s.watchers, s.machine.View, after, which)
}

// StoreConfiguration implements raft.ConfigurationStore. Raft calls it for each committed configuration.
func (f *stateMachine) StoreConfiguration(index uint64, c raft.Configuration) {
	f.s.members.Observe(index, c.Servers)
}

// snapshotsKept is how many snapshots stay: should the newest be damaged, an older one and the trailing log still
// give the whole state.
const snapshotsKept = 3

// snapshotStore observes the members that a snapshot lists, because the log before it is gone. It abandons a snapshot
// in progress when the node has no time left for it.
type snapshotStore struct {
	raft.SnapshotStore
	s *Raft

	mu     sync.Mutex // guards the fields below
	opened string     // the snapshot that was opened last
	err    error      // names the first snapshot that could not be read
}

func (st *snapshotStore) recordError(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err != nil && st.err == nil {
		st.err = fmt.Errorf("%s: %w", st.opened, err)
	}
}

// Open implements raft.SnapshotStore.
func (st *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := st.SnapshotStore.Open(id)
	st.mu.Lock()
	st.opened = id
	st.mu.Unlock()
	st.recordError(err)
	if err == nil {
		st.s.members.Observe(meta.ConfigurationIndex, meta.Configuration.Servers)
	}
	return meta, r, err
}

// Create implements raft.SnapshotStore.
func (st *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := st.SnapshotStore.Create(version, index, term, members, membersIndex, t)
	if err != nil {
		return nil, err
	}
	return &boundedSink{SnapshotSink: sink, until: st.s.saving, discard: func() error {
		return raftio.RemoveUnfinishedSnapshot(st.s.cfg.DataDir, sink.ID())
	}}, nil
}

// boundedSink takes a snapshot until a context ends. After that, nobody waits for it: Close and Cancel of raft's own
// sink sync everything written, which may be a gigabyte.
type boundedSink struct {
	raft.SnapshotSink
	until   context.Context
	discard func() error // removes what was written; systems that cannot remove an open file leave it to the next start
	ended   bool
}

// Write implements io.Writer.
func (s *boundedSink) Write(b []byte) (int, error) {
	if err := s.until.Err(); err != nil {
		return 0, err
	}
	return s.SnapshotSink.Write(b)
}

// Close implements raft.SnapshotSink. A sync that is under way when the context ends continues until the process
// exits, and the snapshot may end up in the store.
func (s *boundedSink) Close() error {
	if err := s.until.Err(); err != nil {
		return err
	}
	return s.end(s.SnapshotSink.Close)
}

// Cancel implements raft.SnapshotSink.
func (s *boundedSink) Cancel() error {
	if s.until.Err() != nil && !s.ended {
		s.ended = true
		return s.discard()
	}
	return s.end(s.SnapshotSink.Cancel)
}

func (s *boundedSink) end(end func() error) error {
	if s.ended {
		return nil
	}
	s.ended = true
	done := make(chan error, 1)
	go func() { done <- end() }()
	select {
	case err := <-done:
		return err
	case <-s.until.Done():
		return s.until.Err()
	}
}
