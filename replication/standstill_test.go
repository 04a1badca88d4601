package replication

import (
	"context"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// restart is what a node does after it was down: its lease clock goes on where it stood.
func restart(t testing.TB, m *registrytest.Memory) {
	t.Helper()
	m.Set(func(m *registrytest.Memory) {
		m.Registry = need.Got(registry.Thaw(m.Registry.Freeze()))(t)
		m.Registry.Doubt()
	})
}

// ORDERS/dead and ORDERS/canceled are at both nodes when b goes down. Then the one is evicted at a, and the
// other canceled; b comes back after a time in which its own clock stood still.
func afterTheDead(t *testing.T, forgotten bool) (a, b *site) {
	a, b = twoNodes(t)
	registerAll(t, a, 1, "dead", "canceled", "alive")
	a.tellChanges(t, 0)
	equal(t, a, b)
	b.Pass(10 * time.Second)
	cancelAll(t, a, "canceled")
	for range 4 {
		a.Pass(30 * time.Second)
		a.Perform(t, registry.Renew{Key: ordersID("alive"), LastDirty: 1})
	}
	a.Evict()
	if forgotten { // the records of both are pruned
		for range 100 {
			a.Pass(25 * time.Minute)
			a.Perform(t, registry.Renew{Key: ordersID("alive"), LastDirty: 1})
		}
	}
	a.without(t, "dead")
	a.without(t, "canceled")
	restart(t, b.Memory)
	return a, b
}

func TestANodeThatWasDownForgetsTheDeadWithItsCopy(t *testing.T) {
	a, b := afterTheDead(t, false)
	need.OK(t, b.Copy(context.Background()))
	b.without(t, "dead")
	b.without(t, "canceled")
	b.lease(t, "alive")
	b.tellChanges(t, 0)
	equal(t, a, b)
}

func TestANodeThatWasDownBringsNobodyBackElsewhere(t *testing.T) {
	for name, forgotten := range map[string]bool{"with records of the removals": false, "after they were pruned": true} {
		t.Run(name, func(t *testing.T) {
			a, b := afterTheDead(t, forgotten)
			b.Pass(20 * time.Second) // what has settled is compared
			b.compareAndRepair(t)
			a.without(t, "dead")
			a.without(t, "canceled")
			if !forgotten {
				b.without(t, "dead")
				b.without(t, "canceled")
			}
			b.lease(t, "alive")
			a.lease(t, "alive")
		})
	}
}

// compareAndRepair is a site's comparison with its one peer.
func (s *site) compareAndRepair(t testing.TB) {
	t.Helper()
	_, tasks, err := s.only().compare(context.Background(), true)
	need.OK(t, err)
	s.tell(t, tasks...)
}
