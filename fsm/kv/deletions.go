package kv

import (
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Deletion records when a key was last deleted, until it is written again or the record is too old.
type Deletion struct {
	Key   string
	Index Index
	At    int64 // lease clock, ms
	Fence Index // of the key's last acquisition; 0 if it was never acquired
}

func (d *Deletion) Fields(c *codec.Codec) {
	c.Lasting(&d.Key)
	codec.Uint(c, &d.Index)
	c.Int64(&d.At)
	codec.Uint(c, &d.Fence)
}

// deletionWeight is roughly how many bytes a Deletion takes besides its key: it is in two trees.
const deletionWeight = 128

func (d Deletion) weight() int { return deletionWeight + len(d.Key) }

// Records of deletions are kept for deletionsFor (ms of lease clock), but at most deletionsLimit of them.
const (
	deletionsFor   = 24 * 60 * 60 * 1000
	deletionsLimit = 100_000
)

// deletions are the records of deletions, for keys that no longer exist.
type deletions struct {
	byKey  order.Map[string, Deletion]
	byAge  order.Schedule[string] // by index, the oldest first; nil in views
	pruned Index                  // of the newest record that was dropped for its age, or because there were too many
	bytes  int                    // of all records, see Deletion.weight
}

// share returns a copy for views.
func (d *deletions) share() deletions {
	return deletions{byKey: d.byKey.Copy(), pruned: d.pruned, bytes: d.bytes}
}

// copy returns a copy that can be written.
func (d *deletions) copy() deletions {
	c := d.share()
	c.byAge = d.byAge.Copy()
	return c
}

func (d *deletions) enter(r Deletion) {
	if _, ok := d.byKey.Set(r.Key, r); !ok {
		d.bytes += r.weight()
	}
	d.byAge.Set(int64(r.Index), r.Key)
}

// drop removes the record of a key that exists again: its pair has a newer index.
func (d *deletions) drop(key string) {
	if r, ok := d.byKey.Delete(key); ok {
		d.bytes -= r.weight()
		d.byAge.Delete(int64(r.Index), r.Key)
	}
}

// prune drops a record that was the last evidence of a change under its key's prefixes: the floor of their indexes
// rises to it.
func (d *deletions) prune(index int64, key string) {
	d.drop(key)
	d.pruned = max(d.pruned, Index(index))
}

// pruneOld drops the records that are too old at a moment (lease clock, ms), and reports whether there were any.
func (d *deletions) pruneOld(lease int64) (any bool) {
	for {
		index, key, ok := d.byAge.First()
		if !ok {
			return any
		}
		if r, _ := d.byKey.Get(key); lease-r.At < deletionsFor {
			return any
		}
		d.prune(index, key)
		any = true
	}
}
