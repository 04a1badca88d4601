package store

import (
	"bytes"
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
)

// localFile is the file below the data directory that holds the registry in AP mode.
const localFile = "registry.db"

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
