package kv

import (
	"cmp"
	"strings"
)

// Records of deletions are kept for deletionsFor (ms of lease clock), and deletionsLimit at most.
const (
	deletionsFor   = 24 * 60 * 60 * 1000
	deletionsLimit = 100_000
)

// deletionWeight is what a Deletion takes beside its key, in bytes, about: it stands in two trees.
const deletionWeight = 128

func (d Deletion) weight() int { return deletionWeight + len(d.Key) }

// aged is a deletion in the order of age.
type aged struct {
	index Index
	key   string
}

func compareAged(a, b aged) int {
	return cmp.Or(cmp.Compare(a.index, b.index), strings.Compare(a.key, b.key))
}

// record notes a deletion, and forgets the oldest one if there are too many.
func (t *tables) record(d Deletion) {
	t.setDeletion(d)
	t.aged.Set(aged{d.Index, d.Key})
	if t.aged.Len() > deletionsLimit {
		oldest, _ := t.aged.Min()
		t.prune(oldest)
	}
}

// forget drops the record of a key that is there again: its entry has a newer index.
func (t *tables) forget(key string) {
	if d, ok := t.deleteDeletion(key); ok {
		t.aged.Delete(aged{d.Index, d.Key})
	}
}

// prune drops a record that was the last to say that its key's prefixes changed: the floor of their
// indexes rises to it.
func (t *tables) prune(a aged) {
	t.forget(a.key)
	t.pruned = max(t.pruned, a.index)
}

// pruneDeletions drops the records that are too old at a moment (lease clock, ms), and says whether
// there were any.
func (t *tables) pruneDeletions(lease int64) (any bool) {
	for {
		oldest, ok := t.aged.Min()
		if !ok {
			return any
		}
		if d, _ := t.deletions.Get(oldest.key); lease-d.At < deletionsFor {
			return any
		}
		t.prune(oldest)
		any = true
	}
}
