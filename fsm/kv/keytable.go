package kv

import (
	"iter"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// keyTable is the part of a View for keys. Its trees are copy-on-write: share costs a few allocations, and shared
// content is never written again.
type keyTable struct {
	pairs     order.Map[string, *Pair]
	stakes    order.Tree[stake] // in held keys
	index     Index             // of the last write or deletion of a key
	bytes     int               // of all pairs, see Pair.Weight
	deletions deletions
	delays    delays
}

func newKeyTable() keyTable {
	return keyTable{
		pairs:  order.NewMap[string, *Pair](order.Degree),
		stakes: order.NewBoxedTree(compareStakes),
		deletions: deletions{
			byKey: order.NewBoxedMap[string, Deletion](order.Degree),
			byAge: order.NewSchedule(strings.Compare),
		},
		delays: delays{until: order.NewBoxedMap[string, int64](order.Degree), ends: order.NewSchedule(strings.Compare)},
	}
}

// share returns a copy for views.
func (t *keyTable) share() keyTable {
	c := *t
	c.pairs, c.stakes = t.pairs.Copy(), t.stakes.Copy()
	c.deletions, c.delays = t.deletions.share(), t.delays.share()
	return c
}

// save returns a copy that the table can be restored from.
func (t *keyTable) save() keyTable {
	c := *t
	c.pairs, c.stakes, c.deletions, c.delays = t.pairs.Copy(), t.stakes.Copy(), t.deletions.copy(), t.delays.copy()
	return c
}

// replace replaces old by p; old is nil if the key was absent.
func (t *keyTable) replace(old, p *Pair) {
	t.pairs.Set(p.Key, p)
	t.bytes += p.Weight()
	if old != nil {
		t.bytes -= old.Weight()
	} else {
		t.deletions.drop(p.Key)
	}
	t.hold(old, p)
}

// remove removes a pair, and records its deletion. It drops the oldest record if there are too many.
func (t *keyTable) remove(p *Pair, index Index, lease int64) {
	t.pairs.Delete(p.Key)
	t.bytes -= p.Weight()
	t.hold(p, nil)
	t.deletions.enter(Deletion{Key: p.Key, Index: index, At: lease, Fence: p.Fence})
	if t.deletions.byAge.Len() > deletionsLimit {
		oldest, key, _ := t.deletions.byAge.First()
		t.deletions.prune(oldest, key)
	}
}

// hold records the holder of a key when p replaces old. Either may be nil.
func (t *keyTable) hold(old, p *Pair) {
	before, now := holder(old), holder(p)
	if before == now {
		return
	}
	if before != "" {
		t.stakes.Delete(stake{before, Key, old.Key})
	}
	if now != "" {
		t.stakes.Set(stake{now, Key, p.Key})
	}
}

// heldBy yields the keys that a session holds, in byte order.
func (t *keyTable) heldBy(session string) iter.Seq[*Pair] {
	return func(yield func(*Pair) bool) {
		for _, s := range stakesOf(t.stakes, session) {
			if p, _ := t.pairs.Get(s.name); !yield(p) {
				return
			}
		}
	}
}

// holder returns the session that holds a key and its token, 0 if no session does.
func (t *keyTable) holder(key string) (session string, token Index) {
	if p, ok := t.pairs.Get(key); ok && p.Session != "" {
		return p.Session, p.Fence
	}
	return "", 0
}

// under yields the pairs whose keys begin with prefix, in byte order.
func (t *keyTable) under(prefix string) iter.Seq[*Pair] {
	return func(yield func(*Pair) bool) {
		t.pairs.Ascend(prefix, func(key string, p *Pair) bool {
			return strings.HasPrefix(key, prefix) && yield(p)
		})
	}
}

// absentIndex returns the index of all keys together, and of an absent one.
func (t *keyTable) absentIndex() Index { return max(t.index, 1) }

// prefixIndex returns the index of a prefix, whose newest pair has the given ModifyIndex; 0 means no pairs. Among the
// dropped records of deletions may have been one under the prefix, so the index is at least that of the newest
// dropped one: it must not go back.
func (t *keyTable) prefixIndex(prefix string, newest Index) Index {
	if prefix == "" {
		return t.absentIndex()
	}
	t.deletions.byKey.Ascend(prefix, func(key string, d Deletion) bool {
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		newest = max(newest, d.Index)
		return true
	})
	if newest == 0 {
		return t.absentIndex()
	}
	return max(newest, t.deletions.pruned)
}

// countUnder counts the keys with a prefix, up to one more than most.
func (t *keyTable) countUnder(prefix string, most int) (n int) {
	for range t.under(prefix) {
		if n++; n > most {
			break
		}
	}
	return n
}
