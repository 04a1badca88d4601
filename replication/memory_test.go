package replication

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// memory is a registry.Service in one process, without durability, whose clock, health and errors a
// test decides.
type memory struct {
	mu       sync.Mutex
	registry *registry.Registry
	watchers registry.Watchers
	started  time.Time
	passed   time.Duration // that the test let pass, beside what passes by itself
	notReady bool
	applyErr error
	applies  int           // calls of Apply
	applied  []registry.Op // by all of them, in order
}

func newMemory() *memory {
	m := &memory{registry: registry.New(), started: time.Now()}
	m.registry.Establish(registry.Epoch{Term: 1, Index: 1}, "test")
	return m
}

func (m *memory) stamp() registry.Stamp {
	passed := time.Since(m.started) + m.passed
	return registry.Stamp{Lease: passed.Milliseconds() + 1, Wall: m.started.Add(passed).UnixMilli()}
}

// pass lets time pass on the lease clock and on the wall.
func (m *memory) pass(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	const step = 30 * time.Minute // the registry believes in an hour at most
	for ; d > 0; d -= step {
		m.passed += min(d, step)
		m.registry.Advance(m.stamp())
	}
	m.watchers.Publish(m.registry.View())
}

// evict does once what an evictor does: it ends overrides and quarantines, and removes the leases that
// have ended.
func (m *memory) evict() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.registry.Advance(m.stamp())
	now := m.registry.Clock().Lease
	for _, op := range m.registry.Ending(now) {
		m.registry.Apply(m.stamp(), 1, registry.FromClient, op)
	}
	items := m.registry.Expired(now, 100_000)
	m.registry.Apply(m.stamp(), 1, registry.FromClient, registry.Evict{Epoch: m.registry.Epoch(), Items: items})
	m.watchers.Publish(m.registry.View())
}

// Apply implements registry.Service.
func (m *memory) Apply(_ context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applies++
	if m.applyErr != nil {
		return nil, m.applyErr
	}
	m.applied = append(m.applied, ops...)
	results := make([]registry.Result, len(ops))
	for i, op := range ops {
		results[i] = m.registry.Apply(m.stamp(), 1, origin, op)
	}
	m.watchers.Publish(m.registry.View())
	return results, nil
}

// View implements registry.Service; the newest state is what every read gets.
func (m *memory) View(context.Context, registry.Consistency) (*registry.View, error) {
	return m.view(), nil
}

// Changes implements registry.Service.
func (m *memory) Changes(ctx context.Context, after registry.Index, which registry.Selector) (registry.Changes, error) {
	return m.watchers.Await(ctx, m.view, after, which)
}

// Health implements registry.Service.
func (m *memory) Health() registry.Health {
	m.mu.Lock()
	defer m.mu.Unlock()
	return registry.Health{Ready: !m.notReady, Quorum: true, Leads: true, Clock: m.stamp().Lease}
}

func (m *memory) view() *registry.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.registry.View()
}

// clock is the lease clock now, ms.
func (m *memory) clock() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stamp().Lease
}

// set changes what the service does.
func (m *memory) set(change func(m *memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// apply performs operations of clients, which must not fail.
func (m *memory) apply(t testing.TB, ops ...registry.Op) []registry.Result {
	t.Helper()
	results := need.Got(m.Apply(context.Background(), registry.FromClient, ops...))(t)
	return results
}

// instance is one that says of itself what a client has to say.
func instance(app, id string, dirty int64) *registry.Instance {
	return &registry.Instance{
		InstanceID: id, HostName: "host-" + id, App: app, IPAddr: "10.0.0.1", Status: registry.Up,
		Port: registry.Port{Number: 8080, Enabled: true}, DataCenter: registry.DataCenter{Name: registry.MyOwn},
		CountryID: 1, VIP: "orders", LastDirty: dirty,
	}
}
