// Package fsmtest provides a registry.Service and a kv.Service for tests of the packages that use them.
package fsmtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Memory is a registry.Service in one process, without durability. A test decides its clock, health and errors. Use
// Set to change its fields while it is in use.
type Memory struct {
	Mu       sync.Mutex // guards the fields below
	Registry *registry.Registry
	Watchers registry.Watchers
	Reported registry.Health // what Health reports, except the clock
	ApplyErr error
	ViewErr  error                      // for linearizable and leader reads
	Alone    bool                       // without consensus
	Applies  int                        // calls of Apply
	Applied  []registry.Op              // the operations of all those calls, in order
	wakes    int                        // returns of Changes with changes
	after    func(taken registry.Index) // called after every operation, if not nil
	Passed   time.Duration              // time that the test added to the real time
	started  time.Time
}

// New returns the service of a leader in its first term.
func New() *Memory {
	m := &Memory{Registry: registry.New(), started: time.Now(), Reported: registry.Health{Ready: true, Quorum: true, Leads: true}}
	m.Registry.Establish(registry.Epoch{Term: 1, Index: 1}, "test")
	return m
}

// Set changes or reads the service under its mutex.
func (m *Memory) Set(change func(m *Memory)) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	change(m)
}

// Fail makes Apply return an error, or succeed again if err is nil.
func (m *Memory) Fail(err error) { m.Set(func(m *Memory) { m.ApplyErr = err }) }

// Count returns how often Apply was called.
func (m *Memory) Count() (n int) {
	m.Set(func(m *Memory) { n = m.Applies })
	return n
}

// Woken returns how often Changes returned with changes.
func (m *Memory) Woken() (n int) {
	m.Set(func(m *Memory) { n = m.wakes })
	return n
}

// Stamp returns the present time. The caller holds the mutex.
func (m *Memory) Stamp() registry.Stamp {
	passed := time.Since(m.started) + m.Passed
	return registry.Stamp{Lease: passed.Milliseconds() + 1, Wall: m.started.Add(passed).UnixMilli()}
}

// Clock returns the lease clock in ms.
func (m *Memory) Clock() (now int64) {
	m.Set(func(m *Memory) { now = m.Stamp().Lease })
	return now
}

// Pass lets time pass on the lease clock and the wall clock.
func (m *Memory) Pass(d time.Duration) {
	m.Set(func(m *Memory) {
		const step = 30 * time.Minute // the registry's clock moves by at most an hour
		for ; d > 0; d -= step {
			m.Passed += min(d, step)
			m.Registry.Advance(m.Stamp())
		}
		m.Watchers.Publish(m.Registry.View())
	})
}

// Evict does once what an evictor does: it ends overrides and quarantines, and removes the leases that have ended.
func (m *Memory) Evict() {
	m.Set(func(m *Memory) {
		due := m.expired()
		m.perform(registry.Evict{Epoch: m.Registry.Epoch(), Items: due})
		m.Watchers.Publish(m.Registry.View())
	})
}

// expired ends overrides and quarantines, and returns the leases that have ended.
func (m *Memory) expired() []registry.EvictItem {
	m.Registry.Advance(m.Stamp())
	now := m.Registry.Clock().Lease
	for _, op := range m.Registry.Ending(now) {
		m.perform(op)
	}
	return m.Registry.Expired(now, 100_000)
}

// Lead does once what a leader does all the time: it moves self-preservation, and evicts its share of the ended
// leases, unless evictions are withheld.
func (m *Memory) Lead() {
	m.Set(func(m *Memory) {
		now := m.Stamp().Lease
		m.Registry.Advance(m.Stamp())
		v := m.Registry.View()
		if op, due := v.NextPreservation(now, v.Freshness(now)); due {
			op.Epoch = m.Registry.Epoch()
			m.perform(op)
		}
		if due := m.expired(); len(due) > 0 && !m.Registry.View().Preservation().State.Withholds() {
			m.perform(registry.Evict{Epoch: m.Registry.Epoch(), Items: registry.Victims(due, m.Registry.View().RoundLimit(0), func(int) int { return 0 })})
		}
		m.Watchers.Publish(m.Registry.View())
	})
}

// LeadAlways leads until the test ends.
func (m *Memory) LeadAlways(t testing.TB) {
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for tick := time.Tick(20 * time.Millisecond); ctx.Err() == nil; {
			select {
			case <-tick:
				m.Lead()
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		stop()
		all.Wait()
	})
}

func (m *Memory) perform(op registry.Op) {
	m.Registry.Apply(m.Stamp(), 1, registry.FromClient, op)
}

// Apply implements registry.Service.
func (m *Memory) Apply(_ context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	m.Applies++
	if m.ApplyErr != nil {
		return nil, m.ApplyErr
	}
	m.Applied = append(m.Applied, ops...)
	results := make([]registry.Result, len(ops))
	for i, op := range ops {
		results[i] = m.Registry.Apply(m.Stamp(), 1, origin, op)
		if m.after != nil {
			m.after(results[i].Index)
		}
	}
	m.Watchers.Publish(m.Registry.View())
	return results, nil
}

// Perform performs operations of clients that must succeed.
func (m *Memory) Perform(t testing.TB, ops ...registry.Op) []registry.Result {
	t.Helper()
	return need.Got(m.Apply(context.Background(), registry.FromClient, ops...))(t)
}

// View implements registry.Service.
func (m *Memory) View(_ context.Context, read registry.Consistency) (*registry.View, error) {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	if m.ViewErr != nil && read != registry.Stale {
		return nil, m.ViewErr
	}
	if m.Alone && read != registry.Stale {
		return nil, fmt.Errorf("view: %w", registry.ErrNotOffered)
	}
	return m.Registry.View(), nil
}

// Newest returns the present state.
func (m *Memory) Newest() (v *registry.View) {
	m.Set(func(m *Memory) { v = m.Registry.View() })
	return v
}

// Changes implements registry.Service.
func (m *Memory) Changes(ctx context.Context, after registry.Index, which registry.Selector) (registry.Changes, error) {
	changes, err := m.Watchers.Await(ctx, m.Newest, after, which)
	if err == nil {
		m.Set(func(m *Memory) { m.wakes++ })
	}
	return changes, err
}

// Health implements registry.Service.
func (m *Memory) Health() registry.Health {
	m.Mu.Lock()
	defer m.Mu.Unlock()
	said := m.Reported
	if m.Alone {
		said.Leads, said.Quorum = false, said.Ready
	}
	if said.Leads || m.Alone {
		said.Clock = m.Stamp().Lease
	}
	return said
}
