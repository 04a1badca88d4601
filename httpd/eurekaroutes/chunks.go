package eurekaroutes

import (
	"bytes"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/flate"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// A document of the whole registry, or of the delta, is made of chunks: runs of leases in order. The leases themselves
// decide where a chunk ends, not a count from the start, so that a lease that comes or goes moves no other boundary:
// one change costs the encoding of one chunk, however long the document is.
const (
	meanChunk = 128 // leases; a power of two
	maxChunk  = 512 // leases
)

// lead says how the text of a chunk begins.
type lead uint8

const (
	leadFirst   lead = iota // the document's first application
	leadNewApp              // the end of the last application, and a new one
	leadSameApp             // an application that the previous chunk began
)

// chunk is the encoded form of a run of leases.
type chunk struct {
	leases []*registry.Lease
	lead   lead
	data   []byte // the text, or its deflated form that ends on a byte boundary
	sum    checksum
}

// endsChunk reports whether a lease is the last of its chunk. Handles survive re-registrations, so a chunk keeps its
// borders while its leases change.
func endsChunk(l *registry.Lease) bool {
	// The finalizer of MurmurHash3: neighbouring handles must not end neighbouring chunks.
	h := uint64(l.Handle.Slot)<<32 ^ l.Handle.Gen
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return h%meanChunk == 0
}

// chunker encodes chunks of one representation. It reuses its buffers.
type chunker struct {
	format     eureka.Format
	compressed bool
	text       []byte
	deflated   bytes.Buffer
	deflater   *flate.Writer
}

// encode makes the chunk of leases.
func (c *chunker) encode(leases []*registry.Lease, begin lead) *chunk {
	c.text = c.text[:0]
	next := begin
	for i, l := range leases {
		if i > 0 {
			next = leadOf(leases[i-1], l)
		}
		switch next {
		case leadNewApp:
			c.text = eureka.AppendSeparator(eureka.AppendApplicationTail(c.text, c.format), c.format)
			fallthrough
		case leadFirst:
			c.text = eureka.AppendApplicationHead(c.text, c.format, l.Instance.App)
		case leadSameApp:
			c.text = eureka.AppendSeparator(c.text, c.format)
		}
		c.text = eureka.AppendInstance(c.text, c.format, l, l.RenewedAt)
	}
	made := c.finish(c.text)
	made.leases, made.lead = slices.Clone(leases), begin
	return made
}

// finish makes a chunk from a text without leases. It compresses the text without reference to any other, up to a byte
// boundary. Writing to memory does not fail.
func (c *chunker) finish(text []byte) *chunk {
	made := &chunk{sum: sumOf(text)}
	if !c.compressed {
		made.data = bytes.Clone(text)
		return made
	}
	c.deflated.Reset()
	if c.deflater == nil {
		c.deflater, _ = flate.NewWriter(&c.deflated, flate.BestSpeed) // cannot fail: the level is valid
	} else {
		c.deflater.Reset(&c.deflated)
	}
	_, _ = c.deflater.Write(text)
	_ = c.deflater.Flush()
	made.data = bytes.Clone(c.deflated.Bytes())
	return made
}

// leadOf returns what stands between two neighbours; before is nil for the very first lease.
func leadOf(before, l *registry.Lease) lead {
	switch {
	case before == nil:
		return leadFirst
	case before.Instance.App != l.Instance.App:
		return leadNewApp
	}
	return leadSameApp
}

// checksum is the CRC-32 and the size of a text, with what is needed to append it to another.
type checksum struct {
	crc   uint32
	size  int64
	shift uint32 // x^(8·size) modulo the polynomial
}

func sumOf(text []byte) checksum {
	sum := checksum{crc: crc32.ChecksumIEEE(text), size: int64(len(text)), shift: one}
	power := uint32(one >> 8) // x^8
	for bytes := sum.size; bytes > 0; bytes >>= 1 {
		if bytes&1 != 0 {
			sum.shift = multiply(power, sum.shift)
		}
		power = multiply(power, power)
	}
	return sum
}

// then returns the checksum of two texts one after the other, without reading them (source: zlib, crc32_combine).
func (s checksum) then(next checksum) checksum {
	return checksum{
		crc:   multiply(next.shift, s.crc) ^ next.crc,
		size:  s.size + next.size,
		shift: multiply(next.shift, s.shift),
	}
}

const one = 1 << 31 // x^0: CRC-32 keeps its coefficients in reversed order

// multiply returns a·b modulo CRC-32's polynomial.
func multiply(a, b uint32) uint32 {
	var product uint32
	for m := uint32(one); m != 0; m >>= 1 {
		if a&m != 0 {
			product ^= b
		}
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= crc32.IEEE
		}
	}
	return product
}
