package registry

import "testing"

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
	if res := g.apply(fromNode, evicted); res.Outcome != Done || res.Index == 0 {
		t.Errorf("removal of what is known by hearsay: %+v, want it done", res)
	}
	g = doubting(t)
	g.client(Renew{Key: orders1, LastDirty: 100})
	if res := g.apply(fromNode, evicted); res.Outcome != Older {
		t.Errorf("removal of what was renewed since: %+v, want it refused", res)
	}
	g = doubting(t)
	if res := g.apply(fromDC2, evicted); res.Outcome != Older {
		t.Errorf("another datacenter's removal of the own one's instance: %+v, want it refused", res)
	}
}

func TestHearsayIsToldWithAnAgeThatRenewsNothing(t *testing.T) {
	g := doubting(t)
	told := g.View().ReplicaOf(g.lease(orders1), g.now.Lease)
	if told.Age != UnknownAge {
		t.Fatalf("told with an age of %d, want %d", told.Age, UnknownAge)
	}
	other := newRig(t)
	other.pass(5000)
	if res := other.apply(fromNode, told); res.Outcome != Refused {
		t.Errorf("a cluster that has it not: %+v, want it refused", res)
	}
	other.register(instance(orders1, Up, 100))
	before := other.renewed(other.lease(orders1))
	other.pass(5000)
	other.apply(fromNode, told)
	if got := other.renewed(other.lease(orders1)); got != before {
		t.Errorf("a node that has it: renewed at %v, want %v", got, before)
	}
	g.client(Renew{Key: orders1, LastDirty: 100})
	if told := g.View().ReplicaOf(g.lease(orders1), g.now.Lease); told.Age != 0 {
		t.Errorf("after a renewal it is told with an age of %d, want 0", told.Age)
	}
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
	if got := other.status(orders1); got != OutOfService {
		t.Errorf("%v, want OUT_OF_SERVICE", got)
	}
	g.apply(fromNode, replicaAt(Up, 101, ageOf(UnknownAge)))
	if g.View().Age(g.lease(orders1), g.now.Lease) != UnknownAge {
		t.Error("a newer version that is hearsay made a renewal of hearsay")
	}
}

// What a node acknowledged before it was down it may have told nobody. It must not be lost, and is nothing
// that others may tell as renewed.
func TestHearsayOfWhatIsNotKnownIsEnteredForOneLease(t *testing.T) {
	g := newRig(t)
	g.WithoutConsensus()
	g.apply(fromNode, replicaAt(Up, 100, ageOf(UnknownAge)))
	l := g.lease(orders1)
	if renewed := g.renewed(l); renewed != g.now {
		t.Errorf("its lease began at %v, want %v", renewed, g.now)
	}
	if age := g.View().Age(l, g.now.Lease); age != UnknownAge {
		t.Errorf("it is told with an age of %d, want %d", age, UnknownAge)
	}
	for _, kind := range []ChangeKind{Evicted, Canceled} {
		g.apply(fromNode, Remove{Key: orders1, Kind: kind, Life: 1, LastDirty: 100, Age: 60_000})
		if res := g.apply(fromNode, replicaAt(Up, 100, ageOf(UnknownAge))); res.Outcome != Refused {
			t.Errorf("after a removal of kind %v: %+v, want it refused", kind, res)
		}
	}
	if res := g.apply(fromNode, replicaAt(Up, 101, ageOf(UnknownAge))); res.Outcome != Done {
		t.Errorf("a newer registration: %+v, want it entered", res)
	}
}
