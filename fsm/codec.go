package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Errors of decoding that a caller can tell apart.
var (
	// ErrNewerVersion: what was to be read was written by a newer version of Rollcall. It is whole,
	// and a newer program reads it.
	ErrNewerVersion = errors.New("written by a newer version")
	// ErrOlderVersion: what was to be read was written by an earlier version of Rollcall, of which
	// this one reads nothing.
	ErrOlderVersion = errors.New("written by an earlier version")
	// ErrCorrupt: what was to be read is not what any version writes.
	ErrCorrupt = errors.New("corrupt")
)

// decoder reads numbers and strings from b. Its first error sticks: everything read afterwards is
// zero, so callers check once, at the end.
//
// Only the shortest encoding of a number is accepted. So every value has one encoding, and replicas
// can compare bytes instead of values.
type decoder struct {
	b   []byte
	off int
	err error

	share bool   // strings are cut out of text instead of copied one by one
	text  string // a copy of b, made for the first string; "" until then
}

// newSharing returns a decoder whose strings share one copy of b: a record of twenty strings costs
// one allocation, and is freed as a whole. Not for buffers of which few strings live on.
func newSharing(b []byte) decoder { return decoder{b: b, share: true} }

func (d *decoder) left() int { return len(d.b) - d.off }

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w at byte %d: %s", ErrCorrupt, d.off, fmt.Sprintf(format, args...))
	}
}

// formatVersion is the version of entries, batches, results, snapshots and the records of the local
// disk: one number, because what one of them holds the others hold too.
const formatVersion = 5

// version reads the version byte that every format begins with.
func (d *decoder) version() {
	version := d.byte()
	switch {
	case d.err != nil:
	case version == 0:
		d.fail("version 0, want %d", formatVersion)
	case version > formatVersion:
		d.err = fmt.Errorf("%w: format version %d, this program reads %d", ErrNewerVersion, version, formatVersion)
	case version < formatVersion:
		d.err = fmt.Errorf("%w: format version %d, this program reads %d", ErrOlderVersion, version, formatVersion)
	}
}

func (d *decoder) byte() byte {
	if d.err != nil {
		return 0
	}
	if d.left() == 0 {
		d.fail("it ends too early")
		return 0
	}
	d.off++
	return d.b[d.off-1]
}

func (d *decoder) bool() bool { return d.enum(1, "truth value") == 1 }

// enum reads a byte of at most last.
func (d *decoder) enum(last byte, what string) byte {
	v := d.byte()
	if v > last {
		d.fail("%s %d, want at most %d", what, v, last)
		return 0
	}
	return v
}

func (d *decoder) uvarint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b[d.off:])
	if n <= 0 {
		d.fail("a number that is cut short or exceeds 64 bits")
		return 0
	}
	if n > 1 && d.b[d.off+n-1] == 0 {
		d.fail("a number with needless bytes")
		return 0
	}
	d.off += n
	return v
}

func (d *decoder) uint32() uint32 {
	v := d.uvarint()
	if v > math.MaxUint32 {
		d.fail("number %d exceeds 32 bits", v)
		return 0
	}
	return uint32(v)
}

// int64 and int32 are two's complement: what is normally positive stays short.
func (d *decoder) int64() int64 { return int64(d.uvarint()) }
func (d *decoder) int32() int32 { return int32(d.uint32()) }

// count reads the number of elements that follow, of which each takes at least size bytes. More than
// can follow is refused, so what is allocated for them is bounded by what is there.
func (d *decoder) count(size int) int {
	v := d.uvarint()
	if d.err == nil && v > uint64(d.left()/size) {
		d.fail("%d elements announced, %d bytes left", v, d.left())
		return 0
	}
	return int(v)
}

// bytes reads a length and returns that much of b, not a copy.
func (d *decoder) bytes() []byte {
	n := d.count(1)
	if d.err != nil {
		return nil
	}
	d.off += n
	return d.b[d.off-n : d.off]
}

func (d *decoder) string() string {
	b := d.bytes()
	if !d.share || len(b) == 0 {
		return string(b)
	}
	if d.text == "" {
		d.text = string(d.b)
	}
	return d.text[d.off-len(b) : d.off]
}

// lasting reads a string that outlives what it was read with, as a lease's owner does in the record of
// its removal.
func (d *decoder) lasting() string { return string(d.bytes()) }

// end refuses what is left and returns the first error.
func (d *decoder) end() error {
	if d.err == nil && d.left() > 0 {
		d.fail("%d bytes too many", d.left())
	}
	return d.err
}

func appendInt64(dst []byte, v int64) []byte   { return binary.AppendUvarint(dst, uint64(v)) }
func appendInt32(dst []byte, v int32) []byte   { return appendUint32(dst, uint32(v)) }
func appendUint32(dst []byte, v uint32) []byte { return binary.AppendUvarint(dst, uint64(v)) }

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// appendList encodes how many elements there are, and each of them.
func appendList[T any](dst []byte, all []T, each func([]byte, T) []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(all)))
	for _, v := range all {
		dst = each(dst, v)
	}
	return dst
}

// list is the inverse of appendList, of elements that take at least size bytes; nil if there are none.
func list[T any](d *decoder, size int, each func(*decoder) T) []T {
	n := d.count(size)
	if n == 0 {
		return nil
	}
	all := make([]T, n)
	for i := range all {
		all[i] = each(d)
	}
	return all
}

// prefixLength inserts the length of dst[start:] before it.
func prefixLength(dst []byte, start int) []byte {
	var prefix [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(prefix[:], uint64(len(dst)-start))
	return slices.Insert(dst, start, prefix[:n]...)
}
