package wire

import "errors"

var errChunk = errors.New("not a chunked body")

// maxChunk bounds a chunk's size, so that its digits cannot overflow.
const maxChunk = 1 << 40

// chunkedReader takes a chunked body (RFC 9112, 7.1) in pieces as they arrive. Extensions and trailers are passed over.
type chunkedReader struct {
	next   chunkPart
	size   int64 // of the chunk: what its digits say so far, and then the bytes that have not come
	digits int   // of the size, so far
	blank  bool  // the trailer's line is empty so far
}

// chunkPart is a part of a chunked body.
type chunkPart uint8

const (
	chunkSize chunkPart = iota
	chunkExtension
	chunkData
	chunkEnd // the line break behind the data
	chunkTrailer
)

// read takes bytes up to the end of a chunk at most. data is what they have of the body, rest what is left of them. After
// the last chunk whole is true.
func (c *chunkedReader) read(b []byte) (data, rest []byte, whole bool, err error) {
	for i, x := range b {
		switch c.next {
		case chunkData:
			n := min(c.size, int64(len(b)-i))
			if c.size -= n; c.size == 0 {
				c.next = chunkEnd
			}
			return b[i : i+int(n)], b[i+int(n):], false, nil
		case chunkSize:
			err = c.readSize(x)
		case chunkExtension:
			if x == '\n' {
				err = c.beginData()
			}
		case chunkEnd:
			err = c.endData(x)
		case chunkTrailer:
			if x == '\n' && c.blank {
				return nil, b[i+1:], true, nil
			}
			c.blank = x == '\n' || x == '\r' && c.blank
		}
		if err != nil {
			return nil, nil, false, err
		}
	}
	return nil, nil, false, nil
}

// readSize takes a digit of the chunk's size, or what follows the last one.
func (c *chunkedReader) readSize(x byte) error {
	digit := int64(0)
	switch {
	case '0' <= x && x <= '9':
		digit = int64(x - '0')
	case 'a' <= x|0x20 && x|0x20 <= 'f':
		digit = int64(x|0x20-'a') + 10
	case x == '\n':
		return c.beginData()
	case x == ';' || x == '\r' || x == ' ' || x == '\t':
		c.next = chunkExtension
		return nil
	default:
		return errChunk
	}
	c.digits++
	if c.size = c.size<<4 | digit; c.size > maxChunk {
		return errChunk
	}
	return nil
}

// beginData follows the line of the chunk's size. The last chunk is empty.
func (c *chunkedReader) beginData() error {
	switch {
	case c.digits == 0:
		return errChunk
	case c.size == 0:
		c.next, c.blank = chunkTrailer, true
	default:
		c.next = chunkData
	}
	return nil
}

// endData takes the line break behind the data.
func (c *chunkedReader) endData(x byte) error {
	switch x {
	case '\r':
	case '\n':
		*c = chunkedReader{}
	default:
		return errChunk
	}
	return nil
}
