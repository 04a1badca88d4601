package local

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// The buckets of the file; docs/reference/formats/local-disk.md says what is in them.
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

// marks say how far the disk has what takes no index of its own.
type marks struct {
	renewedTo  int64          // lease clock of the last write that had renewals, ms
	reducedTo  registry.Index // the records of removals up to it are reduced
	recordedTo registry.Index // the newest record of a removal
}

func createBuckets(tx *bbolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

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

// readRow parses what a key of the file has.
func readRow[T any](key, b []byte, parse func([]byte) (T, error)) (T, error) {
	b, err := disk.Unsealed(key, b)
	if err != nil {
		var none T
		return none, err
	}
	return parse(b)
}
