package registry

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var fromNode = Origin{Kind: LocalPeer}

// Each node of a datacenter without consensus lives its own life, and now and then hears what another one has, or
// had. Once they tell each other everything they soon agree, and what they agree on is the last registration or
// cancel.
func TestReplicationMakesNodesAgree(t *testing.T) {
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

// circle is a set of nodes, and every operation that any of them sent.
type circle struct {
	nodes []*Registry
	now   Stamp
	sent  []Op
}

func newCircle(n int) *circle {
	c := &circle{now: Stamp{Lease: 1000, Wall: startOfWall}}
	for i := range n {
		r := New()
		r.SetLevel(codec.Newest)
		r.Establish(Epoch{Term: 1, Index: 1}, fmt.Sprint(i))
		r.Apply(c.now, 1, fromNode, Contact{Sender: fmt.Sprint((i + 1) % n), Incarnation: 1, Clock: 1})
		c.nodes = append(c.nodes, r)
	}
	return c
}

// drawClientOp draws what clients and operators of a node do.
var drawClientOp = rapid.Custom(func(t *rapid.T) Op {
	key, dirty := drawKey.Draw(t, "key"), drawDirty.Draw(t, "dirty")
	switch rapid.IntRange(0, 12).Draw(t, "op") {
	case 0, 1, 2, 3:
		i := drawInstance.Draw(t, "instance")
		i.Duration = 600 // no lease ends, so that every receiver performs what is sent
		return Register{i}
	case 4, 5, 6:
		return Cancel{key}
	case 7:
		return SetOverride{Key: key, Status: drawStatus.Draw(t, "override"), LastDirty: dirty, For: drawFor.Draw(t, "for"), By: drawAct.Draw(t, "by"), Drain: rapid.Bool().Draw(t, "drain")}
	case 8:
		return DeleteOverride{Key: key, Fallback: drawStatus.Draw(t, "fallback"), LastDirty: dirty}
	case 9:
		return UpdateMetadata{Key: key, Pairs: []Pair{{Key: "k", Value: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "v")}}}
	case 10, 11:
		return Quarantine{Key: key, For: drawFor.Draw(t, "for"), By: drawAct.Draw(t, "by")}
	default:
		return Renew{Key: key, LastDirty: dirty, Status: drawStatus.Draw(t, "status")}
	}
})

// step makes one thing happen on one node: a client's operation, the end of what is due, or news of what another node
// has, or had.
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
	case kind == 7 && len(c.sent) > 0:
		c.apply(t, node, fromNode, rapid.SampledFrom(c.sent).Draw(t, "sent before"))
	default:
		if says := c.says(rapid.SampledFrom(c.nodes).Draw(t, "teller")); len(says) > 0 {
			c.apply(t, node, fromNode, rapid.SampledFrom(says).Draw(t, "sent"))
		}
	}
}

func (c *circle) apply(t *rapid.T, node *Registry, origin Origin, op Op) Result {
	res := node.Apply(c.now, 1, origin, op)
	need.OKf(t, check(node), "after %+v from %v", op, origin)
	need.OKf(t, expect.Err(Thaw(node.Freeze())), "after %+v from %v", op, origin)
	return res
}

// says returns everything that a node has, live and removed.
func (c *circle) says(node *Registry) []Op {
	var ops []Op
	v := node.View()
	for l := range v.All() {
		ops = append(ops, v.ReplicaOf(l, c.now.Lease))
	}
	for rec := range v.Removals() {
		ops = append(ops, v.RemoveOf(rec, c.now.Lease))
	}
	c.sent = append(c.sent, ops...)
	return ops
}

// exchange makes every node send every other one all it has, in any order, mixed with some of what was sent before.
// It reports whether that changed nothing.
func (c *circle) exchange(t *rapid.T) (quiet bool) {
	quiet = true
	for _, teller := range c.nodes {
		for _, node := range c.nodes {
			if teller == node {
				continue
			}
			old := rapid.SliceOfN(rapid.SampledFrom(append(c.sent, Op(Renew{}))), 0, 5).Draw(t, "sent before")
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

// stand is the version of an instance, and whether the instance is live in it.
type stand struct {
	life  uint32
	dirty int64
	live  bool
}

// compare ranks a removal above the registration that it ended.
func (s stand) compare(o stand) int {
	return cmp.Or(cmp.Compare(s.life, o.life), cmp.Compare(s.dirty, o.dirty), cmp.Compare(one(o.live), one(s.live)))
}

// newest returns the newest version of each instance that any node has.
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

// A change sent by a node of this datacenter goes to no peer: that node sends it to the others itself.
func TestReplicaByANodeOfThisDatacenterIsSentToNoPeer(t *testing.T) {
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
			need.That(t, len(renewed) == 0, "renewals to be sent: %v", renewed)
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

// n1 and n2 are nodes of dc1 without consensus, dc2 owns orders-1. While the link was cut, both sides made decisions
// about it, in the same number of steps. Whatever those are: once the sides talk again they agree within a few
// rounds, and then nothing changes any more.
func TestReplicasOfEqualVersionInTwoDatacentersConverge(t *testing.T) {
	statuses := []Status{Up, Down, OutOfService, Starting}
	decisions := map[string][]Op{}
	for _, s := range statuses {
		decisions["override"] = append(decisions["override"], SetOverride{Key: orders1, Status: s})
	}
	for _, v := range []string{"a", "b", "c", "d"} {
		decisions["metadata"] = append(decisions["metadata"], UpdateMetadata{Key: orders1, Pairs: []Pair{{Key: "k", Value: v}}})
	}
	for what, ops := range decisions {
		for i, here := range ops {
			for j, there := range ops {
				for _, first := range []int{0, 1, 2} {
					t.Run(fmt.Sprintf("%s %d and %d, from %d", what, i, j, first), func(t *testing.T) {
						decideApart(t, here, there, first)
					})
				}
			}
		}
	}
}

func decideApart(t *testing.T, here, there Op, first int) {
	sites := []*rig{newRig(t), newRig(t), newRig(t)} // n1, n2, dc2
	n1, n2, dc2 := sites[0], sites[1], sites[2]
	dc2.register(instance(orders1, Up, 100))
	tell := func(from, to *rig) bool { return sendAs(from, to, from == dc2, to == dc2) }
	tell(dc2, n1)
	tell(n1, n2)
	n1.client(here)
	dc2.client(there)
	tell(n1, n2)
	before := []Index{n1.index, n2.index, dc2.index}
	for round := 0; ; round++ {
		quiet := true
		for k := range sites {
			for l := range sites {
				from, to := sites[(first+k)%3], sites[(first+l)%3]
				// dc2 talks only to n1; any other node of dc1 would do as well.
				if apart := from == n2 && to == dc2 || from == dc2 && to == n2; from == to || apart {
					continue
				}
				if tell(from, to) {
					quiet = false
				}
			}
		}
		if quiet {
			break
		}
		need.That(t, round != 3, "not quiet after %d rounds", round)
	}
	for k, g := range sites {
		got, want := g.lease(orders1).Sum(), dc2.lease(orders1).Sum()
		expect.That(t, got == want, "%d has %+v, dc2 has %+v", k, g.lease(orders1).Instance, dc2.lease(orders1).Instance)
		changes := g.index - before[k]
		expect.That(t, changes <= 3, "%d changed %d times", k, changes)
	}
}

// sendAs makes one registry tell another about orders-1, and adopt what is newer in the answer. It reports whether
// anything changed.
func sendAs(from, to *rig, fromOwner, toOwner bool) (changed bool) {
	origin := func(owner, other bool) Origin {
		switch {
		case owner == other:
			return fromNode
		case owner:
			return fromDC2
		}
		return Origin{Kind: RemoteDC, DC: "dc1"}
	}
	says := func(g *rig, toOwner bool) Replica {
		op := g.View().ReplicaOf(g.lease(orders1), g.now.Lease)
		if toOwner && op.Owner == "dc2" {
			op.Owner = Here
		}
		return op
	}
	before := from.index + to.index
	if res := to.apply(origin(fromOwner, toOwner), says(from, toOwner)); res.Outcome == Older {
		from.apply(origin(toOwner, fromOwner), says(to, fromOwner))
	}
	return from.index+to.index != before
}

// evictNow returns the eviction that a node decides on its own.
func evictNow(r *Registry, key Key) Evict {
	l, _ := r.View().Find(key)
	return Evict{Epoch: r.Epoch(), Items: []EvictItem{{l.Handle, l.Registered, r.renewed(l).Lease}}}
}

// Nodes that are cut off from a living client evict it, and others miss that it was canceled and came back. What the
// client tells the nodes afterwards is still ordered by its timestamps.
func TestRemovalMissedByOtherNodesLosesNothingTheyAcknowledge(t *testing.T) {
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

func TestOperatorsActsOutliveTheEvictionByOneNode(t *testing.T) {
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
	l := b.lease(orders1)
	expect.That(t, l.Instance.Overridden == Down, "got %+v, want what was decided last", l.Instance)
}

func evicted(g *rig)  { g.client(evictNow(g.Registry, orders1)) }
func canceled(g *rig) { g.client(Cancel{orders1}) }

// This datacenter was founded anew, and another one tells how a life from before that ended.
func TestCancelOfALifeBeforeTheOwnersRemovesNothing(t *testing.T) {
	tests := []struct {
		name   string
		origin Origin
		age    int64
		gone   bool
	}{
		{"renewed before it began", fromDC2, 21_001 + clocksDiffer, false},
		{"renewed in it", fromDC2, 20_000, true},
		{"by a node of this datacenter", fromNode, 60_000, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.pass(100_000)
			g.register(instance(orders1, Up, 100))
			g.pass(20_000)
			res := g.apply(tt.origin, Remove{Key: orders1, Kind: Canceled, Life: 4, LastDirty: 200, Age: tt.age})
			l, live := g.View().Lease(orders1)
			need.That(t, live != tt.gone, "live %t, result %+v, want gone: %t", live, res, tt.gone)
			expect.That(t, !live || l.Life == 5 && l.ByClient == res.Index && res.Outcome == Older,
				"the lease is %+v, result %+v; want life 5, which is sent to all peers", l, res)
		})
	}
}

// A copy of an evicted instance may be an old one that arrives again: only a renewal after the last known one, or a
// newer version, brings the instance back.
func TestReplicaNotRenewedSinceAnEvictionIsRefused(t *testing.T) {
	dc2 := Origin{Kind: RemoteDC, DC: "dc2"}
	for _, tc := range []struct {
		name  string
		age   int64 // of the copy's last renewal, 20 s after that of the evicted instance
		dirty int64 // the evicted instance has 100
		back  bool
	}{
		{name: "the same once more", age: 20_000, dirty: 100},
		{name: "seemingly a little fresher", age: 16_000, dirty: 100},
		{name: "renewed since", age: 5_000, dirty: 100, back: true},
		{name: "of a newer version", age: 20_000, dirty: 101, back: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newRig(t)
			g.pass(60_000)
			copyOf := func(dirty, age int64) Replica {
				return Replica{Instance: instance(orders1, Up, dirty), Life: 1, Age: age}
			}
			g.apply(dc2, copyOf(100, 0))
			g.pass(19_000)
			l := g.lease(orders1)
			g.client(Evict{Epoch: g.Epoch(), Items: []EvictItem{{l.Handle, l.Registered, g.renewed(l).Lease}}})
			g.pass(1_000)
			res := g.apply(dc2, copyOf(tc.dirty, tc.age))
			_, back := g.View().Lease(orders1)
			expect.That(t, back == tc.back && (res.Outcome == Refused) != tc.back, "it is back: %v (%+v), want %v", back, res, tc.back)
		})
	}
}
