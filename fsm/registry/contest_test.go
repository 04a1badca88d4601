package registry

import (
	"fmt"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// n1 and n2 are nodes of dc1 without consensus, dc2 owns orders-1. While the link was cut, both sides decided
// something of it, in the same number of steps. Whatever that is: once they tell each other again they agree
// within a few rounds, and then nothing changes any more.
func TestDecisionsOfEqualVersionInTwoDatacentersAreSettledForGood(t *testing.T) {
	statuses := []Status{Up, Down, OutOfService, Starting}
	decisions := map[string][]Op{}
	for _, s := range statuses {
		decisions["override"] = append(decisions["override"], SetOverride{Key: orders1, Status: s})
	}
	for _, v := range []string{"a", "b", "c", "d"} {
		decisions["metadata"] = append(decisions["metadata"], UpdateMetadata{Key: orders1, Pairs: []Pair{{"k", v}}})
	}
	for what, ops := range decisions {
		for i, here := range ops {
			for j, there := range ops {
				for _, first := range []int{0, 1, 2} {
					t.Run(fmt.Sprintf("%s %d and %d, from %d", what, i, j, first), func(t *testing.T) {
						settle(t, here, there, first)
					})
				}
			}
		}
	}
}

func settle(t *testing.T, here, there Op, first int) {
	sites := []*rig{newRig(t), newRig(t), newRig(t)} // n1, n2, dc2
	n1, n2, dc2 := sites[0], sites[1], sites[2]
	dc2.register(instance(orders1, Up, 100))
	tell := func(from, to *rig) bool { return tellAs(from, to, from == dc2, to == dc2) }
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
				// dc2 talks to n1 alone, which is as good as any node of dc1.
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
		if got, want := g.lease(orders1).Sum(), dc2.lease(orders1).Sum(); got != want {
			t.Errorf("%d has %+v, dc2 has %+v", k, g.lease(orders1).Instance, dc2.lease(orders1).Instance)
		}
		changes := g.index - before[k]
		expect.That(t, changes <= 3, "%d changed %d times", k, changes)
	}
}

// tellAs has one registry tell another orders-1, and take what the answer has newer. It says whether
// anything changed.
func tellAs(from, to *rig, fromOwner, toOwner bool) (changed bool) {
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
