package kv

import (
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Image is the part of a state that a snapshot for people has.
type Image struct {
	registry.Image
	Pairs    []*Pair    // by key
	Sessions []*Session // by id
	Permits  []*Permits // by kind and name, without their queues and the holders' values
	Access   access.Content
}

func (m *Image) empty() bool {
	return len(m.Nodes)+len(m.Instances)+len(m.Pairs)+len(m.Sessions)+len(m.Permits) == 0 && m.Access.Empty()
}

// fields walks an image, with the level of the formats in front.
func (m *Image) fields(c *codec.Codec) {
	c.Version()
	m.Image.Fields(c)
	codec.List(c, &m.Pairs, 8, codec.Each((*Pair).Fields))
	codec.List(c, &m.Sessions, 15, codec.Each((*Session).Fields))
	codec.List(c, &m.Permits, 7, codec.Each((*Permits).Fields))
	m.Access.Fields(c)
}

// Encode returns an image at a level of the formats, not yet compressed.
func (m *Image) Encode(level byte) []byte {
	c := codec.Writer(nil, level)
	m.fields(&c)
	return c.Written()
}

// MaxPart bounds an unpacked part of an image, in bytes: a small file may unpack to much more, in the memory of every
// node.
const MaxPart = 4 << 20

// Unpack reads a part of an image that was encoded and then compressed by Zstandard. Its errors wrap
// codec.ErrNewerVersion or codec.ErrCorrupt.
func Unpack(packed []byte) (Image, error) {
	unpacker, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxPart))
	if err != nil {
		return Image{}, err
	}
	defer unpacker.Close()
	encoded, err := unpacker.DecodeAll(packed, nil)
	if err != nil {
		return Image{}, fmt.Errorf("%w: %w", codec.ErrCorrupt, err)
	}
	var m Image
	c := codec.Reader(encoded)
	m.fields(&c)
	if err := c.End(); err != nil {
		return Image{}, err
	}
	return m, nil
}

// Add appends a part.
func (m *Image) Add(part Image) {
	m.Nodes = append(m.Nodes, part.Nodes...)
	m.Instances = append(m.Instances, part.Instances...)
	m.Pairs = append(m.Pairs, part.Pairs...)
	m.Sessions = append(m.Sessions, part.Sessions...)
	m.Permits = append(m.Permits, part.Permits...)
	m.Access.Add(part.Access)
}

// stagedFor is how long (ms of lease clock) staged parts wait for the next one before they are dropped.
const stagedFor = 60_000

// Staged holds the parts of a restore that have arrived.
type Staged struct {
	ID    string // of the restore; "" if nothing is staged
	By    registry.Act
	Parts uint64 // how many have arrived
	Since int64  // when the last one arrived: lease clock, ms
	Image
}

// freeze returns what is staged; nothing can be added to the copy.
func (s *Staged) freeze() Staged {
	f := *s
	f.Nodes, f.Instances = slices.Clip(f.Nodes), slices.Clip(f.Instances)
	f.Pairs, f.Sessions, f.Permits = slices.Clip(f.Pairs), slices.Clip(f.Sessions), slices.Clip(f.Permits)
	f.Access.Roles, f.Access.Tokens, f.Access.Revoked = slices.Clip(f.Access.Roles), slices.Clip(f.Access.Tokens), slices.Clip(f.Access.Revoked)
	return f
}

// prune drops what has waited for too long at a moment (lease clock, ms).
func (s *Staged) prune(lease int64) {
	if s.ID != "" && lease-s.Since >= stagedFor {
		*s = Staged{}
	}
}

// Restoration says what the newest restore did.
type Restoration struct {
	ID              string
	By              registry.Act
	Index           Index // of its last change
	Wall            int64 // when, ms since the epoch
	Instances       int   // that came back
	InstancesStayed int   // of those in the snapshot, how many are registered now
	Keys            int   // that were written
	KeysDeleted     int
	SessionsEnded   int
	Roles, Tokens   int // that came back
}

func (r *Restoration) fields(c *codec.Codec) {
	c.String(&r.ID)
	r.By.Fields(c)
	codec.Uint(c, &r.Index)
	c.Int64(&r.Wall)
	for _, n := range []*int{&r.Instances, &r.InstancesStayed, &r.Keys, &r.KeysDeleted, &r.SessionsEnded, &r.Roles, &r.Tokens} {
		c.Int(n)
	}
}

// restores is what views show of restores.
type restores struct {
	restored Index        // where the newest incarnation began, 0 if none did: no index of a read is below it
	last     *Restoration // nil if nothing was ever restored
}
