package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// dc1 has orders-1, renewed a second ago, when its clock stood still for a time that nobody knows.
func doubting(t *testing.T) *rig {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	g.pass(1000)
	g.Doubt()
	return g
}

func TestHearsayIsNoGroundToKeepWhatAnotherNodeSawEnd(t *testing.T) {
	evicted := Remove{Key: orders1, Kind: Evicted, Life: 1, LastDirty: 100, Age: 60_000}
	g := doubting(t)
	res := g.apply(fromNode, evicted)
	expect.That(t, res.Outcome == Done && res.Index != 0, "removal of what is known by hearsay: %+v, want it done", res)
	g = doubting(t)
	g.client(Renew{Key: orders1, LastDirty: 100})
	res = g.apply(fromNode, evicted)
	expect.That(t, res.Outcome == Older, "removal of what was renewed since: %+v, want it refused", res)
	g = doubting(t)
	res = g.apply(fromDC2, evicted)
	expect.That(t, res.Outcome == Older, "another datacenter's removal of the own one's instance: %+v, want it refused", res)
}

func TestHearsayIsToldWithAnAgeThatRenewsNothing(t *testing.T) {
	g := doubting(t)
	told := g.View().ReplicaOf(g.lease(orders1), g.now.Lease)
	need.Equal(t, told.Age, UnknownAge, "told with an age of")
	other := newRig(t)
	other.pass(5000)
	res := other.apply(fromNode, told)
	expect.That(t, res.Outcome == Refused, "a cluster that has it not: %+v, want it refused", res)
	other.register(instance(orders1, Up, 100))
	before := other.renewed(other.lease(orders1))
	other.pass(5000)
	other.apply(fromNode, told)
	expect.Equal(t, other.renewed(other.lease(orders1)), before, "a node that has it: renewed at")
	g.client(Renew{Key: orders1, LastDirty: 100})
	expect.Equal(t, g.View().ReplicaOf(g.lease(orders1), g.now.Lease).Age, 0, "after a renewal it is told with an age of")
}

// A version is no renewal: what was decided before the node stood still is told, and taken, as ever.
func TestHearsayKeepsItsVersion(t *testing.T) {
	g := newRig(t)
	g.register(instance(orders1, Up, 100))
	other := newRig(t)
	other.register(instance(orders1, Up, 100))
	g.client(SetOverride{Key: orders1, Status: OutOfService})
	g.Doubt()
	other.apply(fromNode, g.View().ReplicaOf(g.lease(orders1), g.now.Lease))
	expect.Equal(t, other.status(orders1), OutOfService, "got")
	g.apply(fromNode, replicaAt(Up, 101, ageOf(UnknownAge)))
	expect.That(t, g.View().Age(g.lease(orders1), g.now.Lease) == UnknownAge, "a newer version that is hearsay made a renewal of hearsay")
}

// What a node acknowledged before it was down it may have told nobody. It must not be lost, and is nothing
// that others may tell as renewed.
func TestHearsayOfWhatIsNotKnownIsEnteredForOneLease(t *testing.T) {
	g := newRig(t)
	g.WithoutConsensus()
	g.apply(fromNode, replicaAt(Up, 100, ageOf(UnknownAge)))
	l := g.lease(orders1)
	expect.Equal(t, g.renewed(l), g.now, "its lease began at")
	expect.Equal(t, g.View().Age(l, g.now.Lease), UnknownAge, "it is told with an age of")
	for _, kind := range []ChangeKind{Evicted, Canceled} {
		g.apply(fromNode, Remove{Key: orders1, Kind: kind, Life: 1, LastDirty: 100, Age: 60_000})
		res := g.apply(fromNode, replicaAt(Up, 100, ageOf(UnknownAge)))
		expect.That(t, res.Outcome == Refused, "after a removal of kind %v: %+v, want it refused", kind, res)
	}
	if res := g.apply(fromNode, replicaAt(Up, 101, ageOf(UnknownAge))); res.Outcome != Done {
		t.Errorf("a newer registration: %+v, want it entered", res)
	}
}
