package fsmtest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Coordination is a consul.Coordination in one process. It shares the registry, the counter of indexes and the lease
// clock of a Memory.
type Coordination struct {
	m        *Memory
	State    *kv.State    // guarded by the memory's mutex, like the next four fields
	ApplyErr error        // for every Apply
	ViewErr  error        // for views that are not stale
	Revoked  bool         // every caller's token was revoked
	Behind   *kv.View     // what stale views show; nil: the newest state
	After    func()       // called once, after the next Apply or view that is not stale, before its caller goes on
	Applied  atomic.Int64 // operations
	Views    atomic.Int64 // those that were not stale
	Joined   atomic.Int64 // calls of Watch
	Watchers kv.Watchers
}

// NewCoordination returns the coordination over a registry, for a leader in its first term.
func NewCoordination(m *Memory) *Coordination {
	l := &Coordination{m: m, State: kv.New(m.Registry)}
	l.State.Establish(kv.Epoch{Term: 1, Index: 1}, m.Stamp().Lease)
	m.after = l.lose
	return l
}

func (l *Coordination) at() kv.At {
	stamp := l.m.Stamp()
	return kv.At{Index: l.m.Registry.Next(), Lease: stamp.Lease, Wall: stamp.Wall, Term: 1}
}

// lose ends the sessions that depend on checks lost by an operation of the registry.
func (l *Coordination) lose(taken registry.Index) {
	at := l.at()
	if taken != 0 {
		at.Index = taken
	}
	ended := false
	for _, lost := range l.m.Registry.Lost() {
		ended = l.State.Lose(at, []kv.CheckRef{lost}) || ended
	}
	if ended && taken == 0 {
		l.m.Registry.ReserveIndex()
	}
	l.Watchers.Wake(l.State.Touched())
}

// Apply implements kv.Service.
func (l *Coordination) Apply(ctx context.Context, ops ...kv.Op) ([]kv.Result, error) {
	l.m.Mu.Lock()
	defer l.m.Mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if l.ApplyErr != nil {
		return nil, l.ApplyErr
	}
	results := make([]kv.Result, len(ops))
	for i, op := range ops {
		if results[i].Revoked = l.Revoked; l.Revoked {
			continue
		}
		results[i] = l.performBy(access.SenderOf(ctx).Name, op)
	}
	l.happen()
	return results, nil
}

// happen calls After after this call.
func (l *Coordination) happen() {
	if after := l.After; after != nil {
		l.After = nil
		after()
	}
}

// Perform performs an operation; the caller holds the registry memory's mutex.
func (l *Coordination) Perform(op kv.Op) kv.Result { return l.performBy("", op) }

// performBy does what Perform does, in a principal's name.
func (l *Coordination) performBy(principal string, op kv.Op) kv.Result {
	l.Applied.Add(1)
	l.m.Registry.Advance(l.m.Stamp())
	at := l.at()
	at.By = principal
	result := l.State.Apply(at, op)
	if result.Index >= l.m.Registry.Next() {
		l.m.Registry.ReserveIndex()
	}
	l.m.Watchers.Publish(l.m.Registry.View())
	l.Watchers.Wake(l.State.Touched())
	return result
}

// View implements kv.Service.
func (l *Coordination) View(_ context.Context, read registry.Consistency) (*kv.View, error) {
	stale := read == registry.Stale
	l.m.Mu.Lock()
	defer l.m.Mu.Unlock()
	if !stale {
		l.Views.Add(1)
		if l.ViewErr != nil {
			return nil, l.ViewErr
		}
	}
	if stale && l.Behind != nil {
		return l.Behind, nil
	}
	v := l.State.View()
	v.Registry = l.m.Registry.View()
	if !stale {
		l.happen()
	}
	return v, nil
}

// AccessTable returns who may do what, from a stale view.
func (l *Coordination) AccessTable() *access.Table {
	v, _ := l.View(context.Background(), registry.Stale)
	return v.Access()
}

// Watch implements kv.Service.
func (l *Coordination) Watch(t kv.Topic) *kv.Wait {
	l.Joined.Add(1)
	return l.Watchers.Join(t)
}

// WatchCatalog implements consul.Coordination.
func (l *Coordination) WatchCatalog(t registry.Topic) (<-chan struct{}, func()) {
	return l.m.Watchers.Join(t)
}

// RaftAddresses implements consul.Coordination.
func (l *Coordination) RaftAddresses() (string, []string) {
	return "10.0.0.1:7761", []string{"10.0.0.1:7761", "10.0.0.2:7761"}
}

// Fail makes every call fail that asks other nodes.
func (l *Coordination) Fail(err error) {
	l.m.Set(func(m *Memory) {
		l.ApplyErr, l.ViewErr, m.ViewErr, m.Reported.Quorum = err, err, err, err == nil
	})
}

// Due does once what a leader does all the time: it ends sessions and lock-delays whose time has come.
func (l *Coordination) Due() {
	l.m.Mu.Lock()
	defer l.m.Mu.Unlock()
	for _, op := range l.State.Due(l.m.Stamp().Lease, 1000) {
		l.Perform(op)
	}
}

// Pass moves the lease clock on.
func (l *Coordination) Pass(d time.Duration) {
	l.m.Pass(d)
	l.Due()
}
