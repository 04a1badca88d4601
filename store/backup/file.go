// Package backup defines the snapshot format for people: files that a cluster can be restored from, and that can be
// read and compared without a cluster (docs/reference/formats/backup.md). Raft's own snapshots are in package fsm.
// Packages registry and kv decide what a restore does to the state.
//
//	file.go   the frames of a file, and its checksums
//	write.go  writes a file from a view
//	read.go   reads a file, in parts or whole
//	savefile.go writes a file to disk safely
//	diff.go   how two files differ, and what a restore would do
package backup

import (
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

// maxFrame is the largest frame, in bytes: a part must fit into an operation of the log.
const maxFrame = 64 << 20

var frameTable = crc64.MakeTable(crc64.ECMA)

// Reading errors that a caller can tell apart.
var (
	ErrNewerVersion = codec.ErrNewerVersion
	ErrDamaged      = errors.New("the snapshot is damaged")
)

// Header describes a file and where it came from.
type Header struct {
	Level   byte           // of the formats in the file
	Mode    string         // cp or ap: with or without consensus
	Cluster string         // cluster id, or the datacenter's name in AP mode
	Node    string         // the node that wrote the file
	Version string         // version of that node's program
	Wall    int64          // wall clock of the state, in ms since the Unix epoch
	Epoch   string         // the incarnation that Index belongs to
	Index   registry.Index // highest index in the state
	Counts  Counts
}

// Counts has the number of records of each kind.
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

// add counts the records of an image.
func (c *Counts) add(m *kv.Image) {
	c.Instances += len(m.Instances)
	c.Nodes += len(m.Nodes)
	c.Keys += len(m.Pairs)
	c.Sessions += len(m.Sessions)
	c.Permits += len(m.Permits)
	c.Roles += len(m.Access.Roles)
	c.Tokens += len(m.Access.Tokens)
}

// frames writes frames: a length, that many bytes, and a checksum of both. The first error sticks.
type frames struct {
	w   io.Writer
	sum hash.Hash // of everything written so far
	n   int64
	err error
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

// frame writes one frame. Its checksum starts from seed.
func (f *frames) frame(content []byte, seed uint64) {
	head := binary.AppendUvarint(nil, uint64(len(content)))
	sum := crc64.Update(crc64.Update(seed, frameTable, head), frameTable, content)
	f.write(head)
	f.write(content)
	f.write(binary.BigEndian.AppendUint64(nil, sum))
}

// seedOf returns the checksum of what precedes the first frame; that frame's checksum starts from it.
func seedOf(level byte) uint64 { return crc64.Update(0, frameTable, append([]byte(magic), level)) }

// damaged makes an error that names an offset in the file.
func damaged(at int64, format string, args ...any) error {
	return fmt.Errorf("%w at byte %d: %s; take another copy of it, or an older snapshot", ErrDamaged, at, fmt.Sprintf(format, args...))
}
