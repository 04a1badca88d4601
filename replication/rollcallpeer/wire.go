package rollcallpeer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// The messages of changes, of comparisons and of the start-up copy stand in this file, item.go, message.go and
// digest.go (docs/reference/protocol/replication.md). Each is described once, by its walk, at a level of the formats,
// which is its first byte; an item is an operation of the log. A message that came is not trusted: it is bounded and
// checked before anything is made of it.

// Bounds of messages.
const (
	maxMessage  = 8 << 20        // bytes of a message or of its reply; receivers respond 413 above it
	maxItems    = 10_000         // of one message: an item costs its receiver more memory than bytes on the wire
	maxApps     = 50_000         // applications of one question of a comparison
	maxCompared = 4 * maxMessage // bytes of the reply to a comparison
)

// ErrMalformed means that a message cannot be read. Its text says what is wrong.
var ErrMalformed = errors.New("malformed message")

// malformed is an ErrMalformed that says what is wrong.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Body is what is sent at a time: a message, a question, or a reply to one of them.
type Body interface {
	fields(c *codec.Codec)
	check() error
}

// ErrNewer means that a message has a higher level of the formats than this program reads. It is an ErrMalformed,
// too.
var ErrNewer = codec.ErrNewerVersion

// Encode encodes a body for sending, at a level of the formats.
func Encode(level byte, b Body) []byte {
	c := codec.Writer(nil, level)
	c.Version()
	b.fields(&c)
	return c.Written()
}

// levelOf is the level of a body that Decode has read.
func levelOf(text []byte) byte { return text[0] }

// Decode reads a body. It returns ErrMalformed only for what spoils all of it; an item's Check finds whether the item
// is valid.
func Decode(text []byte, to Body) error {
	c := codec.Reader(text)
	c.Version()
	to.fields(&c)
	if err := c.End(); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return to.check()
}

// list walks at most most elements.
func list[T any](c *codec.Codec, all *[]T, most int, fields func(*T, *codec.Codec)) {
	n := c.Count(len(*all), 1)
	if c.Reading() {
		if n > most {
			c.Fail("%d items, want at most %d", n, most)
			return
		}
		*all = make([]T, n)
	}
	for i := range *all {
		fields(&(*all)[i], c)
	}
}

// sorted walks at most most names and their values, in ascending order: a map has one encoding.
func sorted[V any](c *codec.Codec, all *map[string]V, most int, fields func(*V, *codec.Codec)) {
	names := slices.Sorted(maps.Keys(*all))
	n := c.Count(len(names), 2)
	if c.Reading() {
		if n > most {
			c.Fail("%d names, want at most %d", n, most)
			return
		}
		names = make([]string, n)
		*all = make(map[string]V)
	}
	for i := range names {
		value := (*all)[names[i]]
		c.String(&names[i])
		fields(&value, c)
		if !c.Reading() {
			continue
		}
		if i > 0 && names[i] <= names[i-1] {
			c.Fail("%q after %q, want names in ascending order", clip(names[i]), clip(names[i-1]))
		}
		(*all)[names[i]] = value
	}
}

// appendFrame appends a piece of the copy at the start, at a level of the formats: its length, in four bytes, and a
// body.
func appendFrame(dst []byte, level byte, b Body) []byte {
	text := Encode(level, b)
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(text))), text...)
}

// ReadFrame reads a piece of the copy at the start. If it ends too early, it returns io.ErrUnexpectedEOF.
func ReadFrame(r io.Reader, to Body) error {
	length := make([]byte, 4)
	if err := readFull(r, length); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(length)
	if n > maxMessage {
		return malformed("a piece of %d bytes, want at most %d", n, maxMessage)
	}
	frame := make([]byte, n)
	if err := readFull(r, frame); err != nil {
		return err
	}
	return Decode(frame, to)
}

func readFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
