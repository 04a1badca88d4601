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

// The buckets of the file; docs/reference/formats/local-disk.md describes their contents.
var (
	bucketState    = []byte("state")
	bucketLeases   = []byte("leases")
	bucketRenewals = []byte("renewals")
	bucketRemovals = []byte("removals")
	bucketRemoved  = []byte("removed")

	buckets = [][]byte{bucketState, bucketLeases, bucketRenewals, bucketRemovals, bucketRemoved}

	// sortedBuckets has the same, in the order of the file.
	sortedBuckets = slices.SortedFunc(slices.Values(buckets), bytes.Compare)
)

// keyRegistry is the one key of bucketState.
var keyRegistry = []byte("registry")

// marks record how far the disk is with what takes no index of its own.
type marks struct {
	renewedTo  int64          // lease clock of the last write that had renewals, ms
	reducedTo  registry.Index // removal records up to this index are reduced
	recordedTo registry.Index // the newest removal record
}

func createBuckets(tx *bbolt.Tx) error {
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return nil
}

// maxName is how long a key of the file may be before its checksum replaces it; bbolt refuses keys of 32 KiB, and
// page-sized ones are slow.
const maxName = 512

// nameOnDisk returns the key of an instance in the file: application, a zero byte, id. The keys sort like a view's
// leases, because bbolt inserts many keys quickly only in order. A key that would be too long or ambiguous is
// replaced by a checksum behind a zero byte. Keys are only ever compared: the value holds the name, too.
func nameOnDisk(key registry.Key) []byte {
	if n := len(key.App) + 1 + len(key.ID); n <= maxName && key.App != "" && strings.IndexByte(key.App, 0) < 0 {
		return append(append(append(make([]byte, 0, n), key.App...), 0), key.ID...)
	}
	name := binary.AppendUvarint(nil, uint64(len(key.App)))
	sum := sha256.Sum256(append(append(name, key.App...), key.ID...))
	return append([]byte{0}, sum[:]...)
}

// indexOnDisk returns the key of a removal record in the file. The keys sort by index.
func indexOnDisk(index registry.Index) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(index))
}

// readRow parses the value of a key of the file.
func readRow[T any](key, b []byte, parse func([]byte) (T, error)) (T, error) {
	b, err := disk.Unsealed(key, b)
	if err != nil {
		var none T
		return none, err
	}
	return parse(b)
}
