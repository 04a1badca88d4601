package store

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm"
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

// A renewal on disk is its version and four numbers of 64 bits.
const (
	renewalVersion = 1
	renewalSize    = 1 + 4*8
)

// appendRenewal appends the renewals of a lease.
func appendRenewal(dst []byte, l registry.LeaseState) []byte {
	dst = append(dst, renewalVersion)
	for _, v := range []int64{l.Renewed.Lease, l.Renewed.Wall, l.Client, l.Remote} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(v))
	}
	return dst
}

// readRenewal replaces the renewals of a lease by later ones.
func readRenewal(b []byte, l *registry.LeaseState) error {
	switch {
	case len(b) > 0 && b[0] > renewalVersion:
		return fmt.Errorf("renewal of %s: %w: version %d, this program reads up to %d", l.Lease.Key(), fsm.ErrNewerVersion, b[0], renewalVersion)
	case len(b) != renewalSize || b[0] != renewalVersion:
		return fmt.Errorf("renewal of %s: %w: %d bytes, want %d of version %d", l.Lease.Key(), fsm.ErrCorrupt, len(b), renewalSize, renewalVersion)
	}
	for i, v := range []*int64{&l.Renewed.Lease, &l.Renewed.Wall, &l.Client, &l.Remote} {
		*v = int64(binary.BigEndian.Uint64(b[1+8*i:]))
	}
	return nil
}
