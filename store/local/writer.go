package local

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"sort"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// txWriter writes one transaction. Its first error sticks.
type txWriter struct {
	saved
	marks
	tx  *bbolt.Tx
	err error

	leases, renewals, removals, removed *bbolt.Bucket
}

func (w *txWriter) write() error {
	if w.whole {
		for _, name := range buckets {
			if err := w.tx.DeleteBucket(name); err != nil && !errors.Is(err, bbolterrors.ErrBucketNotFound) {
				w.fail(err)
			}
		}
		w.fail(createBuckets(w.tx))
		w.marks = marks{}
	}
	if w.err != nil {
		return w.err
	}
	w.leases, w.renewals = w.tx.Bucket(bucketLeases), w.tx.Bucket(bucketRenewals)
	w.removals, w.removed = w.tx.Bucket(bucketRemovals), w.tx.Bucket(bucketRemoved)
	for _, l := range byName(w.frozen.Leases, func(l registry.LeaseState) *registry.Lease { return l.Lease }) {
		w.set(w.leases, l.name, fsm.AppendLeaseState(nil, w.level, l.record))
		w.delete(w.renewals, l.name)
		w.deleteRemoval(l.name)
	}
	for _, rec := range byName(w.frozen.Removals, func(rec registry.Removal) *registry.Lease { return rec.Lease }) {
		w.delete(w.leases, rec.name)
		w.delete(w.renewals, rec.name)
		w.deleteRemoval(rec.name)
		w.set(w.removed, rec.name, indexOnDisk(rec.record.Lease.Changed))
	}
	w.reduce()
	for _, rec := range slices.Concat(w.amended, w.frozen.Removals) {
		w.enterRemoval(rec)
	}
	w.prune()
	if w.renewed {
		for _, l := range w.saved.renewals {
			w.set(w.renewals, nameOnDisk(l.Lease.Key()), fsm.AppendRenewals(nil, w.level, l))
		}
		w.renewedTo = w.frozen.Clock.Lease
	}
	w.set(w.tx.Bucket(bucketState), keyRegistry, fsm.AppendFrozen(nil, w.level, w.frozen))
	return w.err
}

// named is a record with its key.
type named[T any] struct {
	name   []byte
	record T
}

// byName sorts records by their keys.
func byName[T any](records []T, lease func(T) *registry.Lease) []named[T] {
	sorted := make([]named[T], len(records))
	for i, r := range records {
		sorted[i] = named[T]{nameOnDisk(lease(r).Key()), r}
	}
	sort.Slice(sorted, func(i, j int) bool { return bytes.Compare(sorted[i].name, sorted[j].name) < 0 })
	return sorted
}

// enterRemoval enters the record of a removal.
func (w *txWriter) enterRemoval(rec registry.Removal) {
	w.set(w.removals, indexOnDisk(rec.Lease.Changed), fsm.AppendRemoval(nil, w.level, rec))
	w.recordedTo = max(w.recordedTo, rec.Lease.Changed)
	if !rec.Full {
		w.reducedTo = max(w.reducedTo, rec.Lease.Changed)
	}
}

// deleteRemoval deletes the record of a removal.
func (w *txWriter) deleteRemoval(name []byte) {
	b := w.removed.Get(name)
	if b == nil {
		return
	}
	index, err := disk.Unsealed(name, b)
	if err != nil {
		w.fail(err)
		return
	}
	w.delete(w.removals, index)
	w.delete(w.removed, name)
}

// prune deletes the records that were pruned.
func (w *txWriter) prune() {
	var pruned [][]byte // a cursor must not see its bucket change
	c := w.removals.Cursor()
	for index, b := c.First(); index != nil && binary.BigEndian.Uint64(index) <= uint64(w.frozen.Pruned); index, b = c.Next() {
		rec, err := readRow(index, b, fsm.ParseRemoval)
		if err != nil {
			w.fail(err)
			return
		}
		pruned = append(pruned, nameOnDisk(rec.Lease.Key()))
	}
	for _, name := range pruned {
		w.deleteRemoval(name)
	}
}

// reduce rewrites the records that were reduced since they were written. The reduced ones are the oldest, on the disk
// as in the registry, so this happens at the latest when a record is written that is reduced already.
func (w *txWriter) reduce() {
	due := w.renewed || startsReduced(w.amended) || startsReduced(w.frozen.Removals)
	if w.whole || w.recordedTo <= w.reducedTo || !due {
		return
	}
	for rec := range w.view.Removals() {
		if rec.Full || rec.Lease.Changed > w.after {
			return
		}
		if rec.Lease.Changed > w.reducedTo {
			w.enterRemoval(rec)
		}
	}
}

// startsReduced reports whether the oldest of some records is reduced.
func startsReduced(records []registry.Removal) bool { return len(records) > 0 && !records[0].Full }

func (w *txWriter) set(to *bbolt.Bucket, key, value []byte) {
	if w.err == nil {
		w.err = to.Put(key, disk.Sealed(key, value))
	}
}

func (w *txWriter) delete(from *bbolt.Bucket, key []byte) {
	if w.err == nil {
		w.err = from.Delete(key)
	}
}

func (w *txWriter) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}
