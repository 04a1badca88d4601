package balance

import (
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Picker chooses one of the instances that may be called. Safe for concurrent use.
type Picker interface {
	// Pick returns one of list, which is sorted by id; nil if it is empty.
	Pick(list []*registry.Instance) *registry.Instance
}

// RoundRobin takes turns: of a list that stays the same each is chosen equally often, also when other
// lists are chosen from in between. Each picker begins with any of them, so that the clients of a service
// do not all begin with the same.
func RoundRobin() Picker { return &roundRobin{seed: maphash.MakeSeed()} }

// roundRobin counts turns by list: two services that are called in alternation would see every other turn
// of a common count, and each of them half of its instances. The table has places for more lists than
// most callers have services. Lists that drive each other out of a place are chosen from at random.
type roundRobin struct {
	seed   maphash.Seed
	places [256]atomic.Pointer[turns]
}

// turns are those of one list, from a random one on.
type turns struct {
	of    identity
	taken atomic.Uint64
}

// identity tells a list from others, and from itself after most changes. A change that it does not tell
// goes on with the turns that were.
type identity struct {
	first, last registry.Key
	n           int
}

// Pick implements Picker.
func (r *roundRobin) Pick(list []*registry.Instance) *registry.Instance {
	switch n := len(list); n {
	case 0:
		return nil
	case 1:
		return list[0]
	default:
		of := identity{list[0].Key(), list[n-1].Key(), n}
		return list[r.turnsOf(of).taken.Add(1)%uint64(n)]
	}
}

func (r *roundRobin) turnsOf(of identity) *turns {
	place := &r.places[maphash.Comparable(r.seed, of)%uint64(len(r.places))]
	for {
		now := place.Load()
		if now != nil && now.of == of {
			return now
		}
		begun := &turns{of: of}
		begun.taken.Store(uint64(rand.Uint32())) // far from where the count would begin anew
		if place.CompareAndSwap(now, begun) {
			return begun
		}
	}
}

// InZone chooses, by next (nil: RoundRobin), among the instances of a zone while there is one, and among
// all otherwise. client.ZoneOf says what an instance's zone is.
func InZone(zone string, next Picker) Picker {
	if next == nil {
		next = RoundRobin()
	}
	return inZone{zone, next}
}

type inZone struct {
	zone string
	next Picker
}

// Pick implements Picker.
func (p inZone) Pick(list []*registry.Instance) *registry.Instance {
	return p.next.Pick(client.PreferZone(p.zone, list))
}
