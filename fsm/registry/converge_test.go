package registry

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var fromNode = Origin{Kind: LocalPeer}

// The nodes of a datacenter without consensus live each their own life, and hear now and then what
// another one has, or had. Once they tell each other everything, they soon agree, and what was
// registered or canceled last is what they agree on.
func TestNodesThatTellEachOtherEverythingAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCircle(rapid.IntRange(2, 3).Draw(t, "nodes"))
		for range rapid.IntRange(5, 60).Draw(t, "steps") {
			c.step(t)
		}
		want := c.newest()
		const rounds = 5
		for round := 1; ; round++ {
			quiet := c.exchange(t)
			if quiet {
				break
			}
			need.That(t, round != rounds, "not quiet after %d rounds", rounds)
		}
		c.check(t, want)
	})
}

// circle is some nodes, and everything that any of them told.
type circle struct {
	nodes []*Registry
	now   Stamp
	told  []Op
}

func newCircle(n int) *circle {
	c := &circle{now: Stamp{Lease: 1000, Wall: startOfWall}}
	for i := range n {
		r := New()
		r.Establish(Epoch{Term: 1, Index: 1}, fmt.Sprint(i))
		r.Apply(c.now, 1, fromNode, Contact{Sender: fmt.Sprint((i + 1) % n), Incarnation: 1, Clock: 1})
		c.nodes = append(c.nodes, r)
	}
	return c
}

// drawClientOp is what clients and operators of a node do.
var drawClientOp = rapid.Custom(func(t *rapid.T) Op {
	key, dirty := drawKey.Draw(t, "key"), drawDirty.Draw(t, "dirty")
	switch rapid.IntRange(0, 12).Draw(t, "op") {
	case 0, 1, 2, 3:
		i := drawInstance.Draw(t, "instance")
		i.Duration = 600 // no lease ends, so that all that is told is taken
		return Register{i}
	case 4, 5, 6:
		return Cancel{key}
	case 7:
		return SetOverride{Key: key, Status: drawStatus.Draw(t, "override"), LastDirty: dirty, For: drawFor.Draw(t, "for"), By: drawAct.Draw(t, "by")}
	case 8:
		return DeleteOverride{Key: key, Fallback: drawStatus.Draw(t, "fallback"), LastDirty: dirty}
	case 9:
		return UpdateMetadata{Key: key, Pairs: []Pair{{"k", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "v")}}}
	case 10, 11:
		return Quarantine{Key: key, For: drawFor.Draw(t, "for"), By: drawAct.Draw(t, "by")}
	default:
		return Renew{Key: key, LastDirty: dirty}
	}
})

// step has one thing happen on one node: a client's operation, the end of what is due, or that it hears
// what a node has, or had.
func (c *circle) step(t *rapid.T) {
	passed := rapid.SampledFrom([]int64{0, 0, 1, 1000, 6000}).Draw(t, "pass")
	c.now.Lease, c.now.Wall = c.now.Lease+passed, c.now.Wall+passed
	node := rapid.SampledFrom(c.nodes).Draw(t, "node")
	switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
	case kind < 6:
		c.apply(t, node, FromClient, drawClientOp.Draw(t, "op"))
	case kind == 6:
		for _, op := range node.Ending(c.now.Lease) {
			c.apply(t, node, FromClient, op)
		}
	case kind == 7 && len(c.told) > 0:
		c.apply(t, node, fromNode, rapid.SampledFrom(c.told).Draw(t, "told before"))
	default:
		if says := c.says(rapid.SampledFrom(c.nodes).Draw(t, "teller")); len(says) > 0 {
			c.apply(t, node, fromNode, rapid.SampledFrom(says).Draw(t, "told"))
		}
	}
}

func (c *circle) apply(t *rapid.T, node *Registry, origin Origin, op Op) Result {
	res := node.Apply(c.now, 1, origin, op)
	need.OKf(t, check(node), "after %+v from %v", op, origin)
	need.OKf(t, expect.Err(Thaw(node.Freeze())), "after %+v from %v", op, origin)
	return res
}

// says is all that a node has, live and removed.
func (c *circle) says(node *Registry) []Op {
	var ops []Op
	v := node.View()
	for l := range v.All() {
		ops = append(ops, v.ReplicaOf(l, c.now.Lease))
	}
	for rec := range v.Removals() {
		ops = append(ops, v.RemoveOf(rec, c.now.Lease))
	}
	c.told = append(c.told, ops...)
	return ops
}

// exchange has every node tell every other one all it has, in any order, with some of what was told
// before in between. It says whether nothing changed by that.
func (c *circle) exchange(t *rapid.T) (quiet bool) {
	quiet = true
	for _, teller := range c.nodes {
		for _, node := range c.nodes {
			if teller == node {
				continue
			}
			old := rapid.SliceOfN(rapid.SampledFrom(append(c.told, Op(Renew{}))), 0, 5).Draw(t, "told before")
			ops := rapid.Permutation(append(old, c.says(teller)...)).Draw(t, "order")
			for _, op := range ops {
				if res := c.apply(t, node, fromNode, op); res.Index != 0 {
					quiet = false
				}
			}
		}
	}
	return quiet
}

// stand is the version of an instance, and whether it lives by it.
type stand struct {
	life  uint32
	dirty int64
	live  bool
}

// compare takes a removal for newer than the registration that it ended.
func (s stand) compare(o stand) int {
	return cmp.Or(cmp.Compare(s.life, o.life), cmp.Compare(s.dirty, o.dirty), cmp.Compare(one(o.live), one(s.live)))
}

// newest is the newest that any node has of each instance.
func (c *circle) newest() map[Key]stand {
	stands := make(map[Key]stand)
	enter := func(l *Lease, live bool) {
		s := stand{life: l.Life, dirty: l.Instance.LastDirty, live: live}
		if known, ok := stands[l.Key()]; !ok || s.compare(known) > 0 {
			stands[l.Key()] = s
		}
	}
	for _, node := range c.nodes {
		for l := range node.View().All() {
			enter(l, true)
		}
		for rec := range node.View().Removals() {
			enter(rec.Lease, false)
		}
	}
	return stands
}

// check verifies that all nodes have the same, and that it is the newest.
func (c *circle) check(t *rapid.T, want map[Key]stand) {
	first := sums(c.nodes[0])
	for key, s := range want {
		_, live := first[key]
		expect.That(t, live == s.live, "%s lives: %t, want %+v", key, live, s)
	}
	for i, node := range c.nodes {
		got := sums(node)
		expect.That(t, len(got) == len(first), "node %d has %d instances, node 0 has %d", i, len(got), len(first))
		for key, sum := range got {
			l, _ := node.View().Find(key)
			expect.That(t, sum == first[key] && l.Life == want[key].life && l.Instance.LastDirty == want[key].dirty,
				"node %d has %+v of %+v (sum %x), node 0 has %x, want %+v", i, l, l.Instance, sum, first[key], want[key])
		}
	}
}

func sums(r *Registry) map[Key]uint64 {
	sums := make(map[Key]uint64)
	for l := range r.View().All() {
		sums[l.Key()] = l.Sum()
	}
	return sums
}

// What a node of the own datacenter told is told to nobody: it tells the others itself.
func TestWhatANodeToldIsToldToNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		now := Stamp{Lease: 1000, Wall: startOfWall}
		for _, op := range rapid.SliceOfN(drawToldOp, 1, 50).Draw(t, "ops") {
			now.Lease += 1000
			r.Apply(now, 0, fromNode, op)
			v := r.View()
			for l := range v.All() {
				need.That(t, l.ByClient == 0 && l.ByRemote == 0, "%+v: changed at %d by a client, at %d by a remote datacenter", l, l.ByClient, l.ByRemote)
			}
			for rec := range v.Removals() {
				need.That(t, rec.Lease.Origin == fromNode, "removal %+v", rec.Lease)
			}
			renewed := slices.Collect(v.RenewedAfter(0, true))
			need.That(t, len(renewed) <= 0, "renewals to be told: %v", renewed)
		}
	})
}

var drawToldOp = rapid.Custom(func(t *rapid.T) Op {
	key, dirty, life := drawKey.Draw(t, "key"), drawDirty.Draw(t, "dirty"), drawLife.Draw(t, "life")
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		return Remove{Key: key, Kind: Canceled, Life: life, LastDirty: dirty, Age: drawAge.Draw(t, "age")}
	case 1:
		return Renew{Key: key, LastDirty: dirty, Life: life, Age: drawAge.Draw(t, "age")}
	default:
		return drawReplica.Draw(t, "replica")
	}
})
