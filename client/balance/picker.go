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
func RoundRobin() Picker {
	r := &roundRobin{seed: maphash.MakeSeed()}
	for i := range r.turns {
		r.turns[i].Store(rand.Uint64())
	}
	return r
}

// roundRobin counts turns by list: two services that are called in alternation would see every other turn
// of a common count, and each of them half of its instances. A list is told by its ends and its length;
// the table has room for more lists than most callers have services, and lists that share a place merely
// share turns.
type roundRobin struct {
	seed  maphash.Seed
	turns [256]atomic.Uint64
}

// Pick implements Picker.
func (r *roundRobin) Pick(list []*registry.Instance) *registry.Instance {
	switch n := uint64(len(list)); n {
	case 0:
		return nil
	case 1:
		return list[0]
	default:
		return list[r.turnsOf(list).Add(1)%n]
	}
}

func (r *roundRobin) turnsOf(list []*registry.Instance) *atomic.Uint64 {
	type ends struct {
		first, last registry.Key
		n           int
	}
	place := maphash.Comparable(r.seed, ends{list[0].Key(), list[len(list)-1].Key(), len(list)})
	return &r.turns[place%uint64(len(r.turns))]
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
