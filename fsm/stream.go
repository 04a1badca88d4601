package fsm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"runtime"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

const (
	snapshotMagic = "ROLLCALL"
	checksumSize  = 8
	// flushSize is how much of a snapshot is collected before it is written, and how much is read at once.
	flushSize = 256 << 10
)

var checksumTable = crc64.MakeTable(crc64.ECMA)

// stream is a sequence of records, with a checksum at the end: they are written to w, or read from r. Its first error
// sticks.
type stream struct {
	w     io.Writer
	r     *bufio.Reader
	buf   []byte // writing: what is collected; reading: the current record
	level byte
	c     codec.Codec // of the current record
	sum   uint64
	n     int64 // bytes written
	err   error
}

func newStreamWriter(w io.Writer, level byte) *stream {
	t := &stream{w: w, level: level}
	t.buf = append(append(t.buf, snapshotMagic...), t.level)
	return t
}

// newStreamReader reads what comes before the records.
func newStreamReader(r io.Reader) *stream {
	t := &stream{r: bufio.NewReaderSize(r, flushSize)}
	var b [len(snapshotMagic) + 1]byte
	if _, err := io.ReadFull(t.r, b[:]); err != nil {
		t.readFail("preamble", err)
		return t
	}
	if string(b[:len(snapshotMagic)]) != snapshotMagic {
		t.fail("it begins with %q, want %q", b[:len(snapshotMagic)], snapshotMagic)
		return t
	}
	t.level = b[len(snapshotMagic)]
	c := codec.Reader(b[len(snapshotMagic):])
	c.Version()
	t.err = c.End()
	t.sum = crc64.Update(t.sum, checksumTable, b[:])
	return t
}

func (t *stream) reading() bool { return t.r != nil }

// fail ends reading.
func (t *stream) fail(format string, args ...any) {
	if t.err == nil && t.reading() {
		t.err = fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
	}
}

// readFail reports an error of the reader. A premature end is corruption, the rest is not.
func (t *stream) readFail(what string, err error) {
	switch {
	case t.err != nil:
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		t.fail("it ends inside its %s", what)
	default:
		t.err = fmt.Errorf("read its %s: %w", what, err)
	}
}

// record walks one record, preceded by its length.
func (t *stream) record(what string, fields func(*codec.Codec)) {
	if t.err != nil {
		return
	}
	if !t.reading() {
		t.c = codec.Writer(t.buf, t.level)
		outer := t.c.Open()
		fields(&t.c)
		t.c.Close(outer, what)
		t.buf = t.c.Written()
		t.flushIfLarge()
		return
	}
	t.readBody(what)
	if t.err != nil {
		return
	}
	t.c = codec.SharingReader(t.buf, t.level)
	fields(&t.c)
	if err := t.c.End(); err != nil {
		t.err = fmt.Errorf("%s: %w", what, err)
	}
}

// number walks a number of at most 32 bits between the records.
func (t *stream) number(v uint32, what string) uint32 {
	if t.err != nil {
		return 0
	}
	if !t.reading() {
		t.buf = binary.AppendUvarint(t.buf, uint64(v))
		t.flushIfLarge()
		return v
	}
	b, err := t.r.Peek(binary.MaxVarintLen32) // the checksum that ends the snapshot is longer
	if err != nil {
		t.readFail(what, err)
		return 0
	}
	c := codec.Reader(b)
	c.Uint32(&v)
	if c.Err() != nil {
		t.fail("length or number of a %s: %s", what, c.Err())
		return 0
	}
	read := len(b) - c.Left()
	t.sum = crc64.Update(t.sum, checksumTable, b[:read])
	_, t.err = t.r.Discard(read)
	return v
}

// readBody reads a record's length and content into buf.
func (t *stream) readBody(what string) {
	t.buf = t.buf[:0]
	// In steps, because the length may promise more than there is.
	for left := int(t.number(0, what)); left > 0 && t.err == nil; left -= flushSize {
		start, n := len(t.buf), min(left, flushSize)
		t.buf = slices.Grow(t.buf, n)[:start+n]
		if _, err := io.ReadFull(t.r, t.buf[start:]); err != nil {
			t.readFail(what, err)
		}
	}
	t.sum = crc64.Update(t.sum, checksumTable, t.buf)
}

func (t *stream) flushIfLarge() {
	if len(t.buf) >= flushSize {
		t.flush()
	}
}

// flush also lets other goroutines run: a state may have a million records, and renewals arrive meanwhile. Otherwise
// each of their steps would wait for the end of this goroutine's time slice, 10 ms.
func (t *stream) flush() {
	runtime.Gosched()
	t.sum = crc64.Update(t.sum, checksumTable, t.buf)
	t.write()
}

func (t *stream) write() {
	if t.err != nil {
		return
	}
	n, err := t.w.Write(t.buf)
	t.err = err
	t.n += int64(n)
	t.buf = t.buf[:0]
}

// close writes, or compares, the checksum of everything before it. Nothing may follow it.
func (t *stream) close() error {
	if !t.reading() {
		t.flush()
		t.buf = binary.BigEndian.AppendUint64(t.buf, t.sum)
		t.write()
		return t.err
	}
	var b [checksumSize]byte
	if t.err != nil {
		return t.err
	}
	if _, err := io.ReadFull(t.r, b[:]); err != nil {
		t.readFail("checksum", err)
		return t.err
	}
	if got := binary.BigEndian.Uint64(b[:]); got != t.sum {
		t.fail("checksum %016x, the content has %016x", got, t.sum)
		return t.err
	}
	switch _, err := t.r.ReadByte(); err {
	case nil:
		t.fail("something follows the checksum")
	case io.EOF:
	default:
		t.readFail("end", err)
	}
	return t.err
}
