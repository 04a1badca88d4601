package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// load makes a registry out of what the disk has: an empty one, if that is nothing. Its indexes begin
// beyond all that were given out before.
func (d *localDisk) load() (*registry.Registry, error) {
	f, err := d.read()
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", d.path, explainLocal(err))
	}
	if f == nil {
		return registry.New(), nil
	}
	d.noteMarks(*f)
	f.Index += reserved
	f.Cluster = "" // each start is a history of its own
	r, err := registry.Thaw(*f)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", d.path, explainLocal(err))
	}
	return r, nil
}

func (d *localDisk) noteMarks(f registry.Frozen) {
	d.marks = marks{renewedTo: f.Clock.Lease}
	for _, rec := range f.Removals {
		d.recordedTo = rec.Lease.Changed
		if !rec.Full {
			d.reducedTo = rec.Lease.Changed
		}
	}
}

// read reads the file; nil: nothing was written yet.
func (d *localDisk) read() (f *registry.Frozen, err error) {
	defer recoverDamage(&err)
	err = d.bolt.View(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if tx.Bucket(name) == nil {
				return fmt.Errorf("there is no bucket %q", name)
			}
		}
		b := tx.Bucket(bucketState).Get(keyRegistry)
		if b == nil {
			return nil
		}
		frozen, err := readRow(keyRegistry, b, fsm.ParseFrozen)
		if err != nil {
			return err
		}
		f = &frozen
		return errors.Join(readLeases(tx, f), readRemovals(tx, f))
	})
	return f, err
}

// readLeases reads the leases, and gives each a handle anew: the table of handles is not kept.
func readLeases(tx *bbolt.Tx, f *registry.Frozen) error {
	renewals := tx.Bucket(bucketRenewals)
	err := tx.Bucket(bucketLeases).ForEach(func(name, b []byte) error {
		l, err := readRow(name, b, fsm.ParseLeaseState)
		if err != nil {
			return err
		}
		f.Leases = append(f.Leases, l)
		if later := renewals.Get(name); later != nil {
			_, err = readRow(name, later, func(b []byte) (struct{}, error) {
				return struct{}{}, fsm.ReadRenewals(b, &f.Leases[len(f.Leases)-1])
			})
		}
		return errors.Join(err, given(l.Lease, f.Index))
	})
	if err != nil {
		return err
	}
	slices.SortFunc(f.Leases, func(a, b registry.LeaseState) int {
		x, y := a.Lease.Key(), b.Lease.Key()
		return cmp.Or(strings.Compare(x.App, y.App), strings.Compare(x.ID, y.ID))
	})
	for i := range f.Leases {
		l := *f.Leases[i].Lease
		l.Handle = registry.Handle{Slot: uint32(i), Gen: uint64(i + 1)}
		f.Leases[i].Lease = &l
	}
	f.Slots, f.Generation = uint32(len(f.Leases)), uint64(len(f.Leases))
	return nil
}

// readRemovals reads the records of removals, in the order of their indexes.
func readRemovals(tx *bbolt.Tx, f *registry.Frozen) error {
	return tx.Bucket(bucketRemovals).ForEach(func(index, b []byte) error {
		rec, err := readRow(index, b, fsm.ParseRemoval)
		if err != nil {
			return err
		}
		f.Removals = append(f.Removals, rec)
		return given(rec.Lease, f.Index)
	})
}

// readRow parses what a key of the file has.
func readRow[T any](key, b []byte, parse func([]byte) (T, error)) (T, error) {
	b, err := unsealed(key, b)
	if err != nil {
		var none T
		return none, err
	}
	return parse(b)
}

// given checks that the index of a change was given out when the file was written: the registry itself
// would look only after the indexes have jumped.
func given(l *registry.Lease, newest registry.Index) error {
	if l.Changed > newest {
		return fmt.Errorf("%s has index %d, but the last one given out is %d: %w", l.Key(), l.Changed, newest, fsm.ErrCorrupt)
	}
	return nil
}
