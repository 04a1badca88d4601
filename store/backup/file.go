// Package backup has the format of snapshots for people: files from which a cluster is restored, which can be read and
// compared without one (docs/reference/formats/backup.md). Raft's snapshots are in package fsm. What a restore does to the state is in
// packages registry and kv.
//
//	file.go   the frames of a file, and its checksums
//	write.go  a file made of a view
//	read.go   a file read, as parts or as a whole
//	savefile.go a file on disk
//	diff.go   what differs between two files, and what a restore would do
package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc64"
	"io"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const magic = "ROLLBACK"

// maxFrame bounds a frame, in bytes: a part is an operation of the log.
const maxFrame = 64 << 20

var frameTable = crc64.MakeTable(crc64.ECMA)

// Errors of reading that a caller can tell apart.
var (
	ErrNewerVersion = codec.ErrNewerVersion
	ErrDamaged      = errors.New("the snapshot is damaged")
)

// Header is what a file says of itself.
type Header struct {
	Level   byte           // of the formats
	Mode    string         // cp or ap: with or without consensus
	Cluster string         // id of the cluster; in mode ap the datacenter's name
	Node    string         // that wrote it
	Version string         // of its program
	Wall    int64          // of the state, ms since the epoch
	Epoch   string         // that Index is of
	Index   registry.Index // the highest in the state
	Counts  Counts
}

// Counts are how much of each kind there is.
type Counts struct {
	Instances, Nodes, Keys, Sessions, Permits, Roles, Tokens int
}

func (h *Header) fields(c *codec.Codec) {
	for _, text := range []*string{&h.Mode, &h.Cluster, &h.Node, &h.Version, &h.Epoch} {
		c.String(text)
	}
	c.Int64(&h.Wall)
	codec.Uint(c, &h.Index)
	for _, n := range []*int{&h.Counts.Instances, &h.Counts.Nodes, &h.Counts.Keys, &h.Counts.Sessions, &h.Counts.Permits, &h.Counts.Roles, &h.Counts.Tokens} {
		c.Int(n)
	}
}

// countOf counts what is in an image.
func countOf(m *kv.Image) Counts {
	return Counts{Instances: len(m.Instances), Nodes: len(m.Nodes), Keys: len(m.Pairs), Sessions: len(m.Sessions), Permits: len(m.Permits), Roles: len(m.Access.Roles), Tokens: len(m.Access.Tokens)}
}

func (c *Counts) add(o Counts) {
	c.Instances += o.Instances
	c.Nodes += o.Nodes
	c.Keys += o.Keys
	c.Sessions += o.Sessions
	c.Permits += o.Permits
	c.Roles += o.Roles
	c.Tokens += o.Tokens
}

// frames writes frames: a length, so many bytes, and a checksum of both. The first error sticks.
type frames struct {
	w   io.Writer
	sum hash.Hash // of all that was written
	n   int64
	err error
}

func newFrames(w io.Writer, level byte) *frames {
	f := &frames{w: w, sum: sha256.New()}
	f.write(append([]byte(magic), level))
	return f
}

func (f *frames) write(b []byte) {
	if f.err != nil {
		return
	}
	f.sum.Write(b)
	n, err := f.w.Write(b)
	f.n += int64(n)
	f.err = err
}

// frame writes one frame. seed is what its checksum begins with.
func (f *frames) frame(content []byte, seed uint64) {
	head := binary.AppendUvarint(nil, uint64(len(content)))
	sum := crc64.Update(crc64.Update(seed, frameTable, head), frameTable, content)
	f.write(head)
	f.write(content)
	f.write(binary.BigEndian.AppendUint64(nil, sum))
}

// close writes the end: an empty frame, and the checksum of everything.
func (f *frames) close() error {
	f.frame(nil, 0)
	f.write(f.sum.Sum(nil))
	return f.err
}

// seedOf is what the checksum of the first frame begins with: what stands before it.
func seedOf(level byte) uint64 { return crc64.Update(0, frameTable, append([]byte(magic), level)) }

// damaged is an error at a byte of a file.
func damaged(at int64, format string, args ...any) error {
	return fmt.Errorf("%w at byte %d: %s; take another copy of it, or an older snapshot", ErrDamaged, at, fmt.Sprintf(format, args...))
}
