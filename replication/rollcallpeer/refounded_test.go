package rollcallpeer

import (
	"context"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// refound has a site of two datacenters begin with an empty registry, as a cluster whose data was lost.
func refound(t testing.TB, a, b *site) *site {
	t.Helper()
	a.server.Close()
	anew := newSite()
	anew.become(t, "dc1", "n1", true, link.PeerConfig{Name: "dc2", Kind: link.Datacenter, URLs: []string{b.server.URL}})
	return anew
}

// The instances of dc1 live on at dc2 until their leases end there, and are found at both once their clients come back.
func TestDatacenterFoundedAnewEmptiesNoOther(t *testing.T) {
	a, b := twoDatacenters(t)
	ids := []string{"1", "2", "3", "4", "5"}
	registerAll(t, a, 1, ids...)
	a.Perform(t, peertest.Web("web-1"))
	a.deliverChanges(t, 0)
	ageChanges(a, b)

	a = refound(t, a, b)
	ageChanges(a, b)
	for range 3 {
		d, tasks := a.diff(t, true)
		need.That(t, d.Extra == 6 && len(tasks) == 0, "%d too many, and %d tasks; want 6, and none of them removed", d.Extra, len(tasks))
		a.repair(t)
	}
	need.Equal(t, b.Newest().Total(), 6, "left at dc2:")
	registerAll(t, a, 1, ids[:3]...)
	a.Perform(t, peertest.Web("web-1"))
	a.deliverChanges(t, 0)
	ageChanges(a, b)
	a.repair(t)
	for _, id := range ids[:3] {
		a.lease(t, id)
		b.lease(t, id)
	}
	both(a, b, 60*time.Second)
	b.Perform(t, registry.Renew{Key: ordersID("5")}) // its client talks to dc2 by now
	for _, s := range []*site{a, b} {
		for _, id := range ids[:3] {
			need.Got(s.Apply(context.Background(), registry.FromClient, registry.Renew{Key: ordersID(id)}))(t)
		}
	}
	both(a, b, 60*time.Second)
	b.Evict()
	b.without(t, "4")
	b.lease(t, "5")
	_, ok := b.Newest().Find(registry.NewKey("WEB", "web-1"))
	expect.That(t, ok, "the service of Consul's API is not at dc2 any more")
}

// dc2 knows of lives at the dc1 that was, canceled and not, that seem newer than those at the one that is.
func TestDatacenterFoundedAnewKeepsWhatRegistersThere(t *testing.T) {
	for _, reduced := range []bool{false, true} {
		a, b := twoDatacenters(t)
		again := func(s *site, id string, dirty int64) { registerAll(t, s, dirty, id) }
		for _, id := range []string{"canceled", "lives"} {
			for range 2 { // the second life
				again(a, id, 9)
				cancelAll(t, a, id)
			}
			again(a, id, 9)
		}
		for range 3 {
			a.Perform(t, peertest.Web("web-1"), registry.DeregisterCatalog{Service: "web-1"}, peertest.Web("web-2"), registry.DeregisterCatalog{Service: "web-2"})
		}
		a.Perform(t, peertest.Web("web-1"), peertest.Web("web-2"))
		a.Perform(t, registry.SetOverride{Key: ordersID("lives"), Status: registry.OutOfService})
		a.deliverChanges(t, 0)
		ageChanges(a, b)
		last := a.Newest().Index()
		cancelAll(t, a, "canceled")
		a.Perform(t, registry.DeregisterCatalog{Service: "web-1"})
		a.deliverChanges(t, last)
		b.without(t, "canceled")
		ageChanges(a, b)
		if reduced {
			both(a, b, 5*time.Minute)
		}

		a = refound(t, a, b)
		a.Pass(time.Second)
		for _, id := range []string{"canceled", "lives"} {
			again(a, id, 9)
		}
		a.Perform(t, peertest.Web("web-1"), peertest.Web("web-2"))
		a.deliverChanges(t, 0)
		a.deliverChanges(t, 0)
		ageChanges(a, b)
		a.repair(t)
		for _, s := range []*site{a, b} {
			s.lease(t, "canceled")
			if l := s.lease(t, "lives"); l.Instance.Overridden != registry.OutOfService {
				t.Errorf("at %s it has lost what the operator decided: %+v", s.side.Node, l.Instance)
			}
			for _, id := range []string{"web-1", "web-2"} {
				l, ok := s.Newest().Find(registry.NewKey("WEB", id))
				expect.That(t, ok && (s != a || l.Service != nil), "reduced %t: %s at %s: %+v, want it as it registered", reduced, id, s.side.Node, l)
			}
		}
		equal(t, a, b)
	}
}

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
	a.deliverChanges(t, 0)
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

func TestNodeThatWasDownDropsTheDeadWithItsCopy(t *testing.T) {
	a, b := afterTheDead(t, false)
	need.OK(t, b.Copy(context.Background(), copyWait))
	b.without(t, "dead")
	b.without(t, "canceled")
	b.lease(t, "alive")
	b.deliverChanges(t, 0)
	equal(t, a, b)
}

func TestNodeThatWasDownBringsNoInstanceBackElsewhere(t *testing.T) {
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
	_, tasks, err := s.only().Compare(context.Background(), true)
	need.OK(t, err)
	s.deliver(t, tasks...)
}
