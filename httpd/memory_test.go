package httpd_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// memory is a registry.Service in one process, without durability, whose health and errors a test
// decides.
type memory struct {
	mu       sync.Mutex
	registry *registry.Registry
	watchers registry.Watchers
	started  time.Time
	health   registry.Health
	applyErr error
	viewErr  error                      // of linearizable and leader reads
	alone    bool                       // without consensus
	applies  int                        // calls of Apply
	wakes    int                        // returns of Changes with changes
	lost     func(taken registry.Index) // what becomes of sessions after an operation; nil: there are none
}

func newMemory() *memory {
	m := &memory{registry: registry.New(), started: time.Now(), health: registry.Health{Ready: true, Quorum: true, Leads: true}}
	m.registry.Establish(registry.Epoch{Term: 1, Index: 1}, "test")
	return m
}

// lead does once what a leader does all the time: it moves self-preservation, ends overrides and
// quarantines, and evicts its share of the leases that ended, unless evictions are withheld.
func (m *memory) lead() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.stamp().Lease
	m.registry.Advance(m.stamp())
	v := m.registry.View()
	if op, due := v.NextPreservation(now, v.Freshness(now)); due {
		op.Epoch = m.registry.Epoch()
		m.perform(op)
	}
	for _, op := range m.registry.Ending(now) {
		m.perform(op)
	}
	if due := m.registry.Expired(now, 1000); len(due) > 0 && !m.registry.View().Preservation().State.Withholds() {
		m.perform(registry.Evict{Epoch: m.registry.Epoch(), Items: registry.Victims(due, m.registry.View().RoundLimit(0), func(int) int { return 0 })})
	}
	m.watchers.Publish(m.registry.View())
}

func (m *memory) perform(op registry.Op) {
	m.registry.Apply(m.stamp(), 1, registry.FromClient, op)
}

// leadAlways leads until the test ends.
func (m *memory) leadAlways(t testing.TB) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				m.lead()
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
}

func (m *memory) stamp() registry.Stamp {
	return registry.Stamp{Lease: time.Since(m.started).Milliseconds() + 1, Wall: time.Now().UnixMilli()}
}

// Apply implements registry.Service.
func (m *memory) Apply(_ context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applies++
	if m.applyErr != nil {
		return nil, m.applyErr
	}
	results := make([]registry.Result, len(ops))
	for i, op := range ops {
		results[i] = m.registry.Apply(m.stamp(), 1, origin, op)
		if m.lost != nil {
			m.lost(results[i].Index)
		}
	}
	m.watchers.Publish(m.registry.View())
	return results, nil
}

// View implements registry.Service.
func (m *memory) View(_ context.Context, read registry.Consistency) (*registry.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.viewErr != nil && read != registry.Stale {
		return nil, m.viewErr
	}
	if m.alone && read != registry.Stale {
		return nil, fmt.Errorf("view: %w", registry.ErrNotOffered)
	}
	return m.registry.View(), nil
}

// Changes implements registry.Service.
func (m *memory) Changes(ctx context.Context, after registry.Index, which registry.Selector) (registry.Changes, error) {
	changes, err := m.watchers.Await(ctx, m.view, after, which)
	if err == nil {
		m.set(func(m *memory) { m.wakes++ })
	}
	return changes, err
}

func (m *memory) view() *registry.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.registry.View()
}

// Health implements registry.Service.
func (m *memory) Health() registry.Health {
	m.mu.Lock()
	defer m.mu.Unlock()
	health := m.health
	if health.Leads {
		health.Clock = m.stamp().Lease
	}
	if m.alone {
		health.Leads, health.Quorum, health.Clock = false, health.Ready, m.stamp().Lease
	}
	return health
}

// set changes what the service does.
func (m *memory) set(change func(m *memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// count is how often Apply was called.
func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applies
}

// apply performs operations that must succeed.
func (m *memory) apply(t testing.TB, ops ...registry.Op) []registry.Result {
	t.Helper()
	results := need.Got(m.Apply(context.Background(), registry.FromClient, ops...))(t)
	return results
}
