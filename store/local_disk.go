package store

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// The buckets of the file; docs/formats/local-disk.md says what is in them.
var (
	bucketState    = []byte("state")
	bucketLeases   = []byte("leases")
	bucketRenewals = []byte("renewals")
	bucketRemovals = []byte("removals")
	bucketRemoved  = []byte("removed")

	buckets = [][]byte{bucketState, bucketLeases, bucketRenewals, bucketRemovals, bucketRemoved}

	// sortedBuckets are the same, in the order in which the file has them.
	sortedBuckets = slices.SortedFunc(slices.Values(buckets), bytes.Compare)
)

// keyRegistry is the one key of bucketState.
var keyRegistry = []byte("registry")

// localDisk is the file that a node without consensus keeps its registry in. Each write is one
// transaction: a crash leaves the state of some write, whole. It belongs to one goroutine at a time.
type localDisk struct {
	path  string
	bolt  *bbolt.DB
	delay syncDelay
	marks
}

// marks say how far the disk has what takes no index of its own.
type marks struct {
	renewedTo  int64          // lease clock of the last write that had renewals, ms
	reducedTo  registry.Index // the records of removals up to it are reduced
	recordedTo registry.Index // the newest record of a removal
}

// openLocalDisk opens registry.db below dir, or makes it.
func openLocalDisk(dir string) (*localDisk, error) {
	path := filepath.Join(dir, localFile)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := createLocal(path); err != nil {
			return nil, fmt.Errorf("create %s: %w", path, err)
		}
	}
	err := checkBolt(path, sortedBuckets, func(_, key, value []byte) error {
		_, err := unsealed(key, value)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, explainLocal(err))
	}
	bolt, err := openLocalBolt(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, explainLocal(err))
	}
	return &localDisk{path: path, bolt: bolt}, nil
}

func openLocalBolt(path string) (bolt *bbolt.DB, err error) {
	defer recoverDamage(&err)
	return bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:        2 * time.Second,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
	})
}

// explainLocal says what an operator can do about a file that cannot be read.
func explainLocal(err error) error {
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return fmt.Errorf("another process has it open (%w)", err)
	case errors.Is(err, fsm.ErrNewerVersion):
		return fmt.Errorf("%w: start the newer version again", err)
	case isOfSystem(err):
		return err
	}
	return fmt.Errorf("the file is damaged (%w): remove it, and the node takes over what the others have", err)
}

// createLocal makes the file under another name first, as createBolt does.
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
	return syncDir(filepath.Dir(path))
}

func createBuckets(tx *bbolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

// write brings what changed to the disk, in one transaction.
func (d *localDisk) write(what saved) error {
	d.delay.pass()
	var w localWriter
	err := d.bolt.Update(func(tx *bbolt.Tx) error {
		w = localWriter{saved: what, tx: tx, marks: d.marks}
		return w.write()
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", d.path, err)
	}
	d.marks = w.marks
	return nil
}

func (d *localDisk) close() error { return d.bolt.Close() }

// maxName is how long a key of the file may be before its checksum takes its place; bbolt refuses those
// of 32 KiB, and page-sized ones are slow.
const maxName = 512

// nameOnDisk is the key under which the file has an instance: application, a zero byte, id, in the order of
// a view's leases, because bbolt enters many keys quickly in their order only. Where that would be too long
// or ambiguous it is a checksum, behind a zero byte. It is only ever compared: the value says the same.
func nameOnDisk(key registry.Key) []byte {
	if n := len(key.App) + 1 + len(key.ID); n <= maxName && key.App != "" && strings.IndexByte(key.App, 0) < 0 {
		return append(append(append(make([]byte, 0, n), key.App...), 0), key.ID...)
	}
	name := binary.AppendUvarint(nil, uint64(len(key.App)))
	sum := sha256.Sum256(append(append(name, key.App...), key.ID...))
	return append([]byte{0}, sum[:]...)
}

// indexOnDisk is the key under which the file has a record of a removal: in the order of the indexes.
func indexOnDisk(index registry.Index) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(index))
}

// saved is what one write brings to the disk.
type saved struct {
	frozen registry.Frozen // what changed after an index
	after  registry.Index
	whole  bool           // frozen is everything, and what the disk has is gone
	view   *registry.View // of the same moment

	amended []registry.Removal // records that the disk has, and that changed since without an index

	renewed  bool                  // the renewals of leases that did not change are there too
	renewals []registry.LeaseState // of them only the times count
}

// capture captures what changed after an index.
func capture(r *registry.Registry, after registry.Index) saved {
	what := saved{frozen: r.FreezeSince(after), after: after, view: r.View(), amended: onDisk(r.Amended(), after)}
	if what.frozen.Pruned > after {
		// Something was removed, and its record pruned, since the disk was written: nothing says any more
		// that the disk has what is gone.
		what.frozen, what.whole, what.amended = r.Freeze(), true, nil
	}
	return what
}

// onDisk are those of the records, by index ascending, that a disk has which was written up to an index.
func onDisk(records []registry.Removal, written registry.Index) []registry.Removal {
	newer := slices.IndexFunc(records, func(rec registry.Removal) bool { return rec.Lease.Changed > written })
	if newer < 0 {
		return records
	}
	return records[:newer]
}

// renewedSince returns the leases that did not change, but were renewed at or after a moment of the lease
// clock (ms), in the order of their names.
func (w *saved) renewedSince(at int64) []*registry.Lease {
	var leases []*registry.Lease
	for l := range w.view.All() {
		if l.Changed <= w.after && w.view.LastRenewal(l).Lease >= at {
			leases = append(leases, l)
		}
	}
	return leases
}

// addRenewal adds the renewals of a lease that is still there. They may be newer than all else that is
// written, whose clock they must not pass.
func (w *saved) addRenewal(s registry.LeaseState, ok bool) {
	if !ok {
		return
	}
	now := w.frozen.Clock.Lease
	s.Renewed.Lease, s.Client, s.Remote = min(s.Renewed.Lease, now), min(s.Client, now), min(s.Remote, now)
	w.renewals = append(w.renewals, s)
}

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
