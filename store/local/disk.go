package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// registryFile is the file that holds the registry of a node without consensus. Each write is one transaction: a
// crash leaves the complete state of some write. It belongs to one goroutine at a time.
type registryFile struct {
	path string
	bolt *bbolt.DB
	slow disk.SlowSync
	// level is the level of the file when it was read, or 0 if nothing was written yet.
	level byte
	marks
}

// openRegistryFile opens registry.db below dir, or creates it.
func openRegistryFile(dir string) (*registryFile, error) {
	path := filepath.Join(dir, disk.LocalFile)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := createLocal(path); err != nil {
			return nil, fmt.Errorf("create %s: %w", path, err)
		}
	}
	err := disk.CheckBolt(path, sortedBuckets, func(_, key, value []byte) error {
		_, err := disk.Unsealed(key, value)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, explainLocal(err))
	}
	bolt, err := openLocalBolt(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, explainLocal(err))
	}
	return &registryFile{path: path, bolt: bolt}, nil
}

func openLocalBolt(path string) (bolt *bbolt.DB, err error) {
	defer disk.RecoverDamage(&err)
	return bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:        2 * time.Second,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
	})
}

// explainLocal adds what an operator can do about an unreadable file.
func explainLocal(err error) error {
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return fmt.Errorf("another process has it open (%w)", err)
	case errors.Is(err, fsm.ErrNewerVersion):
		return fmt.Errorf("%w: start the newer version again", err)
	case disk.IsOfSystem(err):
		return err
	}
	return fmt.Errorf("the file is damaged (%w): remove it, and the node takes over what the others have", err)
}

// createLocal creates the file under another name first, as replaceLog of package raftio does.
func createLocal(path string) error {
	tmp := path + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	bolt, err := openLocalBolt(tmp)
	if err != nil {
		return err
	}
	err = bolt.Update(func(tx *bbolt.Tx) error { return createBuckets(tx) })
	if err := errors.Join(err, bolt.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return disk.SyncDir(filepath.Dir(path))
}

// write brings what changed to the disk, in one transaction.
func (d *registryFile) write(what saved) error {
	var w txWriter
	err := d.slow.Do("write the registry", func() error {
		return d.bolt.Update(func(tx *bbolt.Tx) error {
			w = txWriter{saved: what, tx: tx, marks: d.marks}
			return w.write()
		})
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", d.path, err)
	}
	d.marks = w.marks
	return nil
}

func (d *registryFile) close() error { return d.bolt.Close() }

// load makes a registry from the file, empty if the file is. Its indexes begin beyond all that were handed out
// before.
func (d *registryFile) load() (*registry.Registry, error) {
	f, err := d.read()
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", d.path, explainLocal(err))
	}
	if f == nil {
		return registry.New(), nil
	}
	d.marks = marks{renewedTo: f.Clock.Lease}
	for _, rec := range f.Removals {
		d.recordedTo = rec.Lease.Changed
		if !rec.Full {
			d.reducedTo = rec.Lease.Changed
		}
	}
	f.Index += reserved
	f.Cluster = "" // each start is a history of its own
	r, err := registry.Thaw(*f)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", d.path, explainLocal(err))
	}
	return r, nil
}

// read reads the file. It returns nil if nothing was written yet.
func (d *registryFile) read() (f *registry.Frozen, err error) {
	defer disk.RecoverDamage(&err)
	err = d.bolt.View(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if tx.Bucket(name) == nil {
				return fmt.Errorf("bucket %q is missing", name)
			}
		}
		b := tx.Bucket(bucketState).Get(keyRegistry)
		if b == nil {
			return nil
		}
		frozen, err := readRow(keyRegistry, b, func(b []byte) (registry.Frozen, error) {
			f, err := fsm.ParseFrozen(b)
			if err == nil {
				d.level = b[0]
			}
			return f, err
		})
		if err != nil {
			return err
		}
		f = &frozen
		return errors.Join(readLeases(tx, f), readRemovals(tx, f))
	})
	return f, err
}

// readLeases reads the leases, and gives each a new handle: the table of handles is not kept.
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
	slices.SortFunc(f.Leases, func(a, b registry.LeaseState) int { return a.Lease.Key().Compare(b.Lease.Key()) })
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

// given checks that the index of a change had been handed out when the file was written: the registry itself would
// check only after the indexes have jumped.
func given(l *registry.Lease, newest registry.Index) error {
	if l.Changed > newest {
		return fmt.Errorf("%s has index %d, but the last one given out is %d: %w", l.Key(), l.Changed, newest, fsm.ErrCorrupt)
	}
	return nil
}
