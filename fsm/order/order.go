// Package order holds what both halves of the state (packages registry and kv) have in common: how changes are
// numbered, what ends when, how readers wait for changes, how fresh a read is, and which characters names may have. It
// knows neither instances nor keys.
package order

import (
	"math"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Index counts the changes that readers see, of instances and of keys alike: one step per operation (a transaction is
// one). An Evict counts one per removed lease, so that a reader of the change list can stop between any two.
// Renewals, ticks, transitions of self-preservation, refused operations and those that change nothing take no Index.
type Index uint64

// Key names an instance.
type Key struct{ App, ID string }

func (k *Key) Fields(c *codec.Codec) {
	c.String(&k.App)
	c.String(&k.ID)
}

// String returns APP/id.
func (k Key) String() string { return k.App + "/" + k.ID }

// Compare orders keys by application, then by id.
func (k Key) Compare(o Key) int {
	if c := strings.Compare(k.App, o.App); c != 0 {
		return c
	}
	return strings.Compare(k.ID, o.ID)
}

// Epoch is a leadership: the Raft term and index of its Establish entry.
type Epoch struct{ Term, Index uint64 }

func (e *Epoch) Fields(c *codec.Codec) {
	c.Uint64(&e.Term)
	c.Uint64(&e.Index)
}

// Leads reports whether an operation of the leader, in an entry of a term, was proposed under the present epoch, e.
func (e Epoch) Leads(term uint64, proposed Epoch) bool {
	return term == proposed.Term && proposed == e
}

// Later returns the lease clock ms after now, or its last moment if that is too far.
func Later(now, ms int64) int64 {
	if ms > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + ms
}

// EndWithGrace returns the last moment (lease clock, ms) of something that ends at end unless a leadership was
// established lately: then it gets a grace (ms), but only one, however often leaders change (docs/adr/0034).
func EndWithGrace(end, established, grace int64) int64 {
	return max(end, min(Later(established, grace), Later(end, grace)))
}

// Consistency is how fresh a read must be.
type Consistency uint8

// The consistencies.
const (
	// Linearizable: includes every operation that was acknowledged, by any node, before the read began.
	Linearizable Consistency = iota
	// Leader: what the node that believes it leads has; may be stale after a pause or partition.
	Leader
	// Stale: what this node has, without asking another.
	Stale
)

var consistencyNames = [...]string{Linearizable: "linearizable", Leader: "leader", Stale: "stale"}

// String returns the word used in queries, headers and settings.
func (c Consistency) String() string { return consistencyNames[c] }

// ParseConsistency is the inverse of String.
func ParseConsistency(word string) (Consistency, bool) {
	for i, name := range consistencyNames {
		if name == word {
			return Consistency(i), true
		}
	}
	return 0, false
}
