package registry

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// evictNow is the eviction that a node decides for itself.
func evictNow(r *Registry, key Key) Evict {
	l, _ := r.View().Lease(key)
	return Evict{Epoch: r.Epoch(), Items: []EvictItem{{l.Handle, l.Registered, r.renewed(l).Lease}}}
}

// Nodes that are cut off from a client evict it alive, and others miss that it was canceled and came again.
// What the client says to the nodes afterwards is ordered by its timestamps all the same.
func TestARemovalThatOtherNodesMissedLosesNothingThatTheyAcknowledge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCircle(rapid.IntRange(2, 3).Draw(t, "nodes"))
		anyNode := rapid.SampledFrom(c.nodes)
		dirty := int64(100)
		register := func(node *Registry) {
			dirty++
			c.apply(t, node, FromClient, Register{instance(orders1, Up, dirty)})
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			c.now.Lease, c.now.Wall = c.now.Lease+1000, c.now.Wall+1000
			node := anyNode.Draw(t, "node")
			switch _, lives := node.View().Lease(orders1); rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0, 1:
				register(node)
			case 2:
				if lives {
					c.apply(t, node, FromClient, evictNow(node, orders1))
				}
			case 3:
				c.apply(t, node, FromClient, Cancel{orders1})
			default:
				if says := c.says(anyNode.Draw(t, "teller")); len(says) > 0 {
					c.apply(t, node, fromNode, rapid.SampledFrom(says).Draw(t, "told"))
				}
			}
		}
		register(anyNode.Draw(t, "last node"))
		for round := 1; !c.exchange(t); round++ {
			need.That(t, round != 5, "not quiet after %d rounds", round)
		}
		for i, node := range c.nodes {
			l, ok := node.View().Lease(orders1)
			expect.That(t, ok && l.Instance.LastDirty == dirty, "node %d has %+v, want version %d, which was acknowledged last", i, l, dirty)
		}
	})
}

func TestWhatOperatorsDecidedOutlivesANodesOwnEviction(t *testing.T) {
	a, b := newRig(t), newRig(t)
	for _, g := range []*rig{a, b} {
		g.apply(fromNode, Contact{Sender: "other"})
	}
	a.register(instance(orders1, Up, 100))
	a.client(SetOverride{Key: orders1, Status: OutOfService, By: Act{Author: "ann"}})
	told := func(from *rig) Op { return from.View().ReplicaOf(from.lease(orders1), from.now.Lease) }
	b.apply(fromNode, told(a))

	a.client(evictNow(a.Registry, orders1))
	a.register(instance(orders1, Up, 101))
	b.apply(fromNode, told(a))
	a.apply(fromNode, told(b))
	for _, g := range []*rig{a, b} {
		l := g.lease(orders1)
		expect.That(t, l.Instance.Overridden == OutOfService && l.Instance.LastDirty == 101 && l.Override.By.Author == "ann",
			"got %+v of %+v, want ann's override, and what the client said last", l, l.Instance)
	}

	a.client(SetOverride{Key: orders1, Status: Down})
	b.apply(fromNode, told(a))
	if l := b.lease(orders1); l.Instance.Overridden != Down {
		t.Errorf("got %+v, want what was decided last", l.Instance)
	}
}

// A registration after a removal goes on with the life that was removed if its timestamp makes it the newer
// one. Edits count on so that every node knows what became of the override.
func TestRegistrationAfterARemovalGoesOnWithTheLife(t *testing.T) {
	for _, tc := range []struct {
		name   string
		remove func(*rig)
		dirty  int64 // the removed one has 100
		life   uint32
		edit   uint32
	}{
		{"newer", evicted, 101, 1, 1},
		{"newer, its timestamp by the server", evicted, 0, 1, 1},
		{"the same", evicted, 100, 2, 0},
		{"older", evicted, 99, 2, 0},
		{"newer, canceled", canceled, 101, 1, 2},
		{"the same, canceled", canceled, 100, 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newRig(t)
			g.register(instance(orders1, Up, 100))
			g.client(SetOverride{Key: orders1, Status: Down})
			tc.remove(g)
			g.register(instance(orders1, Up, tc.dirty))
			l := g.lease(orders1)
			expect.That(t, l.Life == tc.life && l.Edit == tc.edit && l.Instance.Overridden == Unknown,
				"got %+v of %+v, want life %d, edit %d and no override", l, l.Instance, tc.life, tc.edit)
		})
	}
}

func evicted(g *rig)  { g.client(evictNow(g.Registry, orders1)) }
func canceled(g *rig) { g.client(Cancel{orders1}) }
