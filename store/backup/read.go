package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc64"
	"io"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// Reader reads a file frame by frame.
type Reader struct {
	Header Header
	r      *bufio.Reader
	sum    hash.Hash
	at     int64 // bytes read so far
	buf    []byte
}

// Open reads the header of a file. Errors wrap ErrNewerVersion or ErrDamaged, or come from the reader.
func Open(from io.Reader) (*Reader, error) {
	r := &Reader{r: bufio.NewReaderSize(from, 256<<10), sum: sha256.New()}
	preamble := make([]byte, len(magic)+1)
	if err := r.read(preamble, "preamble"); err != nil {
		return nil, err
	}
	if string(preamble[:len(magic)]) != magic {
		return nil, damaged(0, "it begins with %q, and a snapshot of Rollcall with %q", preamble[:len(magic)], magic)
	}
	level := preamble[len(magic)]
	head, err := r.frame("header", seedOf(level))
	if err != nil {
		return nil, err
	}
	if level < codec.Oldest || level > codec.Newest {
		return nil, fmt.Errorf("%w of Rollcall: the snapshot has level %d, this program reads %d to %d; use the program that wrote it, or a newer one", ErrNewerVersion, level, codec.Oldest, codec.Newest)
	}
	c := codec.SharingReader(head, level)
	r.Header.Level = level
	r.Header.fields(&c)
	if err := c.End(); err != nil {
		return nil, damaged(int64(len(preamble)), "header: %v", err)
	}
	return r, nil
}

// Next returns the next part (see kv.Unpack), valid until the next call. At the end of a complete file it returns
// io.EOF. Its other errors are Open's.
func (r *Reader) Next() ([]byte, error) {
	part, err := r.frame("part", 0)
	if err != nil || len(part) > 0 {
		return part, err
	}
	want, start := r.sum.Sum(nil), r.at
	got := make([]byte, len(want))
	if err := r.read(got, "checksum"); err != nil {
		return nil, err
	}
	if !bytes.Equal(got, want) {
		return nil, damaged(start, "its checksum is %x, and that of its content %x", got, want)
	}
	if _, err := r.r.ReadByte(); err == nil {
		return nil, damaged(r.at, "something follows its end")
	} else if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the snapshot: %w", err)
	}
	return nil, io.EOF
}

// frame reads a frame whose checksum starts from seed.
func (r *Reader) frame(what string, seed uint64) ([]byte, error) {
	start := r.at
	length, head, err := r.length(what)
	if err != nil {
		return nil, err
	}
	// In steps, because a damaged length may promise more than follows.
	r.buf = r.buf[:0]
	for left := length + 8; left > 0; {
		step := min(left, 1<<20)
		had := len(r.buf)
		r.buf = slices.Grow(r.buf, step)[:had+step]
		if err := r.read(r.buf[had:], what); err != nil {
			return nil, err
		}
		left -= step
	}
	content, tail := r.buf[:length], r.buf[length:]
	if sum := crc64.Update(crc64.Update(seed, frameTable, head), frameTable, content); binary.BigEndian.Uint64(tail) != sum {
		return nil, damaged(start, "the %s there has the checksum %x, and its content %016x", what, tail, sum)
	}
	return content, nil
}

// length reads the length of a frame, and also returns its raw bytes.
func (r *Reader) length(what string) (n int, head []byte, err error) {
	start := r.at
	for {
		var b [1]byte
		if err := r.read(b[:], what); err != nil {
			return 0, nil, err
		}
		head = append(head, b[0])
		if b[0] < 0x80 {
			break
		}
		if len(head) == binary.MaxVarintLen32 {
			return 0, nil, damaged(start, "a length of more than %d bytes", maxFrame)
		}
	}
	length, _ := binary.Uvarint(head)
	if length > maxFrame {
		return 0, nil, damaged(start, "a length of %d bytes, and a %s has %d at most", length, what, maxFrame)
	}
	return int(length), head, nil
}

func (r *Reader) read(b []byte, what string) error {
	n, err := io.ReadFull(r.r, b)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return damaged(r.at+int64(n), "it ends inside its %s", what)
	case err != nil:
		return fmt.Errorf("read the snapshot: %w", err)
	}
	r.at += int64(n)
	r.sum.Write(b)
	return nil
}

// Contents holds a complete file.
type Contents struct {
	Header
	kv.Image
}

// Read reads and verifies a complete file. It returns the errors of Open.
func Read(from io.Reader) (Contents, error) {
	var all Contents
	h, err := each(from, func(m kv.Image) { all.Image.Add(m) })
	all.Header = h
	return all, err
}

// Verify reads a file to its end, as Read does, but keeps only the header. bytes is roughly the memory that its keys,
// sessions and nodes need.
func Verify(from io.Reader) (h Header, bytes int64, err error) {
	h, err = each(from, func(m kv.Image) {
		for _, p := range m.Pairs {
			bytes += int64(p.Weight())
		}
		for _, s := range m.Sessions {
			bytes += int64(s.Weight())
		}
		for _, n := range m.Nodes {
			bytes += int64(n.Weight())
		}
	})
	return h, bytes, err
}

// each calls do with every part of a file, and checks the parts against the header's counts.
func each(from io.Reader, do func(kv.Image)) (Header, error) {
	r, err := Open(from)
	if err != nil {
		return Header{}, err
	}
	var found Counts
	for {
		start := r.at
		packed, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Header{}, err
		}
		m, err := kv.Unpack(packed)
		if err != nil {
			return Header{}, damaged(start, "the part there: %v", err)
		}
		if i := slices.IndexFunc(m.Pairs, func(p *kv.Pair) bool { return len(p.Value) > kv.MaxValue }); i >= 0 {
			return Header{}, damaged(start, "the value of key %q has %d bytes, and a key's has %d at most", m.Pairs[i].Key, len(m.Pairs[i].Value), kv.MaxValue)
		}
		for _, s := range m.Instances {
			if err := s.Check(); err != nil {
				return Header{}, damaged(start, "instance %s: %v", s.Instance.Key(), err)
			}
		}
		found.add(&m)
		do(m)
	}
	if found != r.Header.Counts {
		return Header{}, damaged(r.at, "it has %+v, and its header says %+v", found, r.Header.Counts)
	}
	return r.Header, nil
}
