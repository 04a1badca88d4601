// Package codec writes and reads the records of the formats: a record lists its values once, in their order, and the
// same walk writes them, reads them, or counts what they take.
//
// To walk a value is to do the Codec's job with it: write it, read it, or count it.
//
// Numbers are varints, accepted only in their shortest encoding, in two's complement if they can be negative; texts
// and lists have their length in front. So every value has one encoding, and replicas can compare bytes instead of
// values. Input is not trusted: no length allocates more memory than the remaining bytes can fill.
//
// A program reads some levels of the formats (level.go, levels.go) and writes one of them. Nodes of different versions
// agree on which (levelrise.go, docs/run/upgrade.md): it rises when all of them read the next one.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Errors of reading that callers can tell apart.
var (
	// ErrNewerVersion: the input was written by a newer version of Rollcall. It is intact, and a newer program reads
	// it.
	ErrNewerVersion = errors.New("written by a newer version")
	// ErrOlderVersion: the input was written by a version that is too old for this program.
	errOlderVersion = errors.New("written by too old a version")
	// ErrCorrupt: no version writes such input.
	ErrCorrupt = errors.New("corrupt")
)

// mode is the purpose of a walk.
type mode uint8

const (
	writing mode = iota
	reading
	counting // the bytes that writing would take
	weighing // only the bytes of texts
	needing  // the level that writing needs
)

// Codec walks a record: each call writes a value, reads into it, or counts what it takes. The first error of reading
// sticks: everything read afterwards is zero, so callers check once, at the end. A Codec that writes or counts never
// assigns to what it is given: a snapshot is written while views read the same memory.
type Codec struct {
	b     []byte // what was written so far, or what is read
	off   int    // reading: how far; counting: how much so far
	err   error
	mode  mode
	level byte
	need  byte   // needing: the highest level of the fields that are set
	share bool   // strings are cut out of text instead of copied one by one
	text  string // a copy of b, made for the first string; "" until then
}

// Writer appends to dst.
func Writer(dst []byte, level byte) Codec { return Codec{b: dst, level: level} }

// Reader reads b, at level 1 until Version is read.
func Reader(b []byte) Codec { return Codec{b: b, mode: reading, level: 1} }

// SharingReader returns a Reader whose strings share one copy of b: a record of twenty strings costs one allocation,
// and is freed as a whole. Not for buffers that only a few strings outlive.
func SharingReader(b []byte, level byte) Codec {
	return Codec{b: b, mode: reading, level: level, share: true}
}

// Counter counts the bytes that a Writer would append.
func Counter(level byte) Codec { return Codec{mode: counting, level: level} }

// Weigher counts the bytes of texts, without their lengths and without numbers.
func Weigher() Codec { return Codec{mode: weighing, level: Newest} }

// Needer finds the level below which a record cannot be written without losing a part of it.
func Needer() Codec { return Codec{mode: needing, level: Newest, need: Oldest} }

// Need returns the level that a Needer has found.
func (c *Codec) Need() byte { return c.need }

// Reading reports whether values are read.
func (c *Codec) Reading() bool { return c.mode == reading }

// Since reports whether a record has a field that was introduced at a level. set says whether the field has a value:
// only a Needer uses it, so it does not matter when the record is read.
func (c *Codec) Since(level byte, set bool) bool {
	if c.mode == needing && set {
		c.need = max(c.need, level)
	}
	return c.level >= level
}

// Written returns what a Writer has appended to.
func (c *Codec) Written() []byte { return c.b }

// Len returns how much a Counter or a Weigher has counted.
func (c *Codec) Len() int { return c.off }

// Err returns the first error of reading.
func (c *Codec) Err() error { return c.err }

// Left returns how many bytes are still to read.
func (c *Codec) Left() int { return len(c.b) - c.off }

// End refuses bytes that are left after a record is read, and returns the first error.
func (c *Codec) End() error {
	if c.mode == reading && c.err == nil && c.Left() > 0 {
		c.Fail("%d bytes too many", c.Left())
	}
	return c.err
}

// Fail ends reading with ErrCorrupt: no version writes such input.
func (c *Codec) Fail(format string, args ...any) {
	if c.err == nil && c.mode == reading {
		c.err = fmt.Errorf("%w at byte %d: %s", ErrCorrupt, c.off, fmt.Sprintf(format, args...))
	}
}

// Confirm ends reading unless ok. Fields that a Mask announces are neither zero nor out of range.
func (c *Codec) Confirm(ok bool) {
	if !ok {
		c.Fail("a field that is announced and zero, or out of range")
	}
}

// Stop ends reading with an error.
func (c *Codec) Stop(err error) { c.err = err }

// Version walks the byte in front of a format: its level.
func (c *Codec) Version() { c.Level(&c.level) }

// At returns the level of what is walked.
func (c *Codec) At() byte { return c.level }

// Level walks a level of the formats that this program reads.
func (c *Codec) Level(to *byte) {
	if c.mode != reading {
		c.Byte(to)
		return
	}
	var v byte
	c.Byte(&v)
	switch {
	case c.err != nil:
	case v == 0:
		c.Fail("level 0, want %d to %d", Oldest, Newest)
	case v > Newest:
		c.err = fmt.Errorf("%w: level %d of the formats, this program reads %d to %d: start the newer version again", ErrNewerVersion, v, Oldest, Newest)
	case v < Oldest:
		c.err = fmt.Errorf("%w: level %d of the formats, this program reads %d to %d: go through version %s first", errOlderVersion, v, Oldest, Newest, VersionOf(v+1))
	default:
		*to = v
	}
}

// Byte walks one byte.
func (c *Codec) Byte(v *byte) {
	switch c.mode {
	case writing:
		c.b = append(c.b, *v)
	case reading:
		*v = c.byte()
	case counting:
		c.off++
	}
}

// byte reads one byte. It returns 0 after an error.
func (c *Codec) byte() byte {
	if c.err != nil {
		return 0
	}
	if c.Left() == 0 {
		c.Fail("it ends too early")
		return 0
	}
	c.off++
	return c.b[c.off-1]
}

// Enum walks a number of at most last, checked when it is read.
func Enum[E ~uint8](c *Codec, v *E, last E, what string) {
	b := byte(*v)
	c.Byte(&b)
	if c.mode != reading {
		return
	}
	if b > byte(last) {
		c.Fail("%s %d, want at most %d", what, b, byte(last))
		b = 0
	}
	*v = E(b)
}

// Bool walks a boolean.
func (c *Codec) Bool(v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	Enum(c, &b, 1, "truth value")
	if c.mode == reading {
		*v = b == 1
	}
}

// Uint64 walks a number.
func (c *Codec) Uint64(v *uint64) {
	switch c.mode {
	case writing:
		c.b = binary.AppendUvarint(c.b, *v)
	case reading:
		*v = c.uvarint()
	case counting:
		c.off += sizeOf(*v)
	}
}

// sizeOf returns how many bytes a number takes.
func sizeOf(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// uvarint reads a number in its shortest encoding. It returns 0 after an error.
func (c *Codec) uvarint() uint64 {
	if c.err != nil {
		return 0
	}
	v, n := binary.Uvarint(c.b[c.off:])
	if n <= 0 {
		c.Fail("a number that is cut short or exceeds 64 bits")
		return 0
	}
	if n > 1 && c.b[c.off+n-1] == 0 {
		c.Fail("a number with needless bytes")
		return 0
	}
	c.off += n
	return v
}

// Uint walks a number of a named type, such as an index.
func Uint[N ~uint64](c *Codec, v *N) {
	n := uint64(*v)
	c.Uint64(&n)
	if c.mode == reading {
		*v = N(n)
	}
}

// Uint32 walks a number of 32 bits.
func (c *Codec) Uint32(v *uint32) {
	n := uint64(*v)
	c.Uint64(&n)
	if c.mode != reading {
		return
	}
	if n > math.MaxUint32 {
		c.Fail("number %d exceeds 32 bits", n)
		n = 0
	}
	*v = uint32(n)
}

// Int64 walks a number that may be negative. Only a nonnegative number has a short encoding.
func (c *Codec) Int64(v *int64) {
	n := uint64(*v)
	c.Uint64(&n)
	if c.mode == reading {
		*v = int64(n)
	}
}

// Int32 does what Int64 does, for 32 bits.
func (c *Codec) Int32(v *int32) {
	n := uint32(*v)
	c.Uint32(&n)
	if c.mode == reading {
		*v = int32(n)
	}
}

// Int walks a number that is not negative.
func (c *Codec) Int(v *int) {
	n := uint64(*v)
	c.Uint64(&n)
	if c.mode != reading {
		return
	}
	if n > math.MaxInt {
		c.Confirm(false)
		n = 0
	}
	*v = int(n)
}

// Count walks the number of elements that follow, each of at least least bytes. It refuses more than can follow, so
// the memory allocated for them is bounded by the remaining bytes.
func (c *Codec) Count(n, least int) int {
	v := uint64(n)
	c.Uint64(&v)
	if c.err == nil && c.mode == reading && v > uint64(c.Left()/least) {
		c.Fail("%d elements announced, %d bytes left", v, c.Left())
		return 0
	}
	return int(v)
}

// Mask walks the number that says which of the optional fields follow; Bits makes it.
func (c *Codec) Mask(has uint64, fields int, what string) uint64 {
	c.Uint64(&has)
	if has>>fields != 0 {
		c.Fail("%s of unknown form %#x", what, has)
		return 0
	}
	return has
}

// Bits returns a number whose bit i says whether field i follows.
func Bits(has ...bool) uint64 {
	var all uint64
	for i, one := range has {
		if one {
			all |= 1 << i
		}
	}
	return all
}

// String walks a text.
func (c *Codec) String(v *string) {
	if c.mode == reading && c.share {
		*v = c.shared()
		return
	}
	c.Lasting(v)
}

// shared reads a text as a part of the one copy of the whole input.
func (c *Codec) shared() string {
	b := c.Raw()
	if len(b) == 0 {
		return ""
	}
	if c.text == "" {
		c.text = string(c.b)
	}
	return c.text[c.off-len(b) : c.off]
}

// Lasting walks a text that outlives the record that it comes with, as a lease's owner does in the record of its
// removal.
func (c *Codec) Lasting(v *string) {
	switch c.mode {
	case writing:
		c.b = append(binary.AppendUvarint(c.b, uint64(len(*v))), *v...)
	case reading:
		*v = string(c.Raw())
	case counting:
		c.off += sizeOf(uint64(len(*v))) + len(*v)
	case weighing:
		c.off += len(*v)
	}
}

// BoundedText walks a lasting text of at most most bytes. A longer one is cut when written, because an entry that
// cannot be read would stop every node.
func (c *Codec) BoundedText(v *string, most int) {
	if c.mode != reading {
		cut := (*v)[:min(len(*v), most)]
		c.Lasting(&cut)
		return
	}
	if c.Lasting(v); len(*v) > most {
		c.Fail("author or reason of %d bytes, want at most %d", len(*v), most)
		*v = ""
	}
}

// Bytes walks bytes, which are copied when read; an empty slice is read as nil.
func (c *Codec) Bytes(v *[]byte) {
	switch c.mode {
	case writing:
		c.b = append(binary.AppendUvarint(c.b, uint64(len(*v))), *v...)
	case reading:
		*v = nil
		if b := c.Raw(); len(b) > 0 {
			*v = slices.Clone(b)
		}
	case counting:
		c.off += sizeOf(uint64(len(*v))) + len(*v)
	case weighing:
		c.off += len(*v)
	}
}

// Raw reads bytes without copying them.
func (c *Codec) Raw() []byte {
	n := c.Count(0, 1)
	if c.err != nil {
		return nil
	}
	c.off += n
	return c.b[c.off-n : c.off]
}

// Part reads bytes that hold a record, and returns a Reader for that record. If the record cannot be read, what
// follows it still can.
func (c *Codec) Part() Codec { return Codec{b: c.Raw(), mode: reading, level: c.level} }

// Strings walks a list of texts; an empty list is read as nil.
func (c *Codec) Strings(v *[]string) {
	List(c, v, 1, func(s *string, c *Codec) { c.String(s) })
}

// List walks the number of elements, each of at least least bytes, and then the elements. An empty list is read as
// nil.
func List[T any](c *Codec, all *[]T, least int, fields func(*T, *Codec)) {
	n := c.Count(len(*all), least)
	if c.mode == reading {
		*all = nil
		if n > 0 {
			*all = make([]T, n)
		}
	}
	for i := range *all {
		fields(&(*all)[i], c)
	}
}

// Each turns the walk of a record into one for an element of a List of pointers to such records.
func Each[T any](fields func(*T, *Codec)) func(**T, *Codec) {
	return func(p **T, c *Codec) { fields(Ptr(c, p), c) }
}

// Ptr returns the record behind a pointer, a new one when reading. Writing a nil pointer makes the walk panic.
func Ptr[T any](c *Codec, p **T) *T {
	if c.mode == reading {
		*p = new(T)
	}
	return *p
}

// Optional walks a byte that says whether the pointer is set, and then the record behind it.
func Optional[T any](c *Codec, p **T, fields func(*T, *Codec)) {
	there := *p != nil
	if c.Bool(&there); there {
		fields(Ptr(c, p), c)
	} else if c.mode == reading {
		*p = nil
	}
}

// Open opens a body that has its length in front. Reading cannot go beyond the body, and the body's strings share one
// copy of just the body, so they keep nothing else in memory. The caller passes what Open returns to Close.
func (c *Codec) Open() (outer Codec) {
	switch c.mode {
	case writing:
		outer.off = len(c.b)
	case reading:
		body := c.Raw()
		outer = *c
		*c = SharingReader(body, outer.level)
		c.err = outer.err
	default:
		outer.off, c.off = c.off, 0
	}
	return outer
}

// Close closes the body that Open opened; what names the body in errors.
func (c *Codec) Close(outer Codec, what string) {
	switch c.mode {
	case writing:
		var length [binary.MaxVarintLen64]byte
		n := binary.PutUvarint(length[:], uint64(len(c.b)-outer.off))
		c.b = slices.Insert(c.b, outer.off, length[:n]...)
	case reading:
		err := c.End()
		if *c = outer; c.err == nil && err != nil {
			c.err = fmt.Errorf("%s that ends at byte %d: %w", what, c.off, err)
		}
	case counting:
		c.off += outer.off + sizeOf(uint64(c.off))
	case weighing:
		c.off += outer.off
	}
}
