package store

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

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
