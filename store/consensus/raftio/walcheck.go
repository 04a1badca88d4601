package raftio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/types"

	"github.com/seed-20419f34/rollcall/store/disk"
)

// raft-wal takes a segment as far as its frames can be followed, so that it loses what stands behind a damaged one
// without a word, and it cannot tell a segment that was lost from one that was not made yet. It does not go on after a
// crash between the last write to a segment and the next segment's place on its list. So the list is ours, and every
// segment is read, compared with its checksums and mended before the library sees it.

// The layout of raft-wal's segments (its README): a header, then frames, each of which begins at a multiple of eight
// bytes. A write ends with a frame that has the checksum of the write; the last write to a segment has an index.
const (
	walMagic       = 0x58eb6b0d
	walCodec       = 1  // its BinaryCodec
	walHeader      = 32 // magic and version, base index, id, codec
	walFrameHeader = 8  // kind, three zeros, length or checksum
	walEntryFrame  = 1
	walIndexFrame  = 2
	walCommitFrame = 3
	sector         = 512 // what a disk writes as a whole or not at all
)

// check reads all segments, and mends what a crash may leave of the newest.
func (l *walLog) check(each func(*raft.Log)) (walList, error) {
	list := l.list
	list.Segments = slices.Clone(list.Segments)
	for i := range list.Segments {
		info := &list.Segments[i]
		path, newest := l.path(*info), i == len(list.Segments)-1
		s := &segmentReader{info: *info, each: each}
		err := s.read(path)
		last := info.BaseIndex + uint64(len(s.offsets)) - 1
		if err == nil && newest && last < list.Last {
			err = fmt.Errorf("%w: it ends with entry %d, and had entry %d when it was closed", disk.ErrDamaged, last, list.Last)
		}
		if err == nil && newest == !info.SealTime.IsZero() {
			err = fmt.Errorf("%w: it is sealed, or one before the last is not", disk.ErrDamaged)
		}
		if err == nil && s.torn {
			err = l.files.cut(path, s.end, s.used())
		}
		if err != nil {
			return list, fmt.Errorf("open %s: %w", path, explainBolt(err))
		}
		if newest && s.index > 0 { // the node died before the next one was on the list
			info.IndexStart, info.MaxIndex, info.SealTime = uint64(s.index), last, time.Now()
		}
	}
	return list, nil
}

// segmentReader goes through a segment.
type segmentReader struct {
	info    types.SegmentInfo
	each    func(*raft.Log)
	b       []byte   // the segment
	offsets []uint32 // of entries in complete writes
	index   int      // where the index begins; 0: there is none
	end     int      // of the last complete write
	torn    bool     // what follows is part of a write that a crash cut off
}

// read reads a segment, and calls each with those of its entries that are part of the log.
func (s *segmentReader) read(path string) (err error) {
	s.b, err = os.ReadFile(path)
	switch sealed := !s.info.SealTime.IsZero(); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: it is missing", disk.ErrDamaged)
	case err != nil:
		return err
	case len(s.b) < max(int(s.info.SizeLimit), walHeader):
		return fmt.Errorf("%w: it has %d bytes, and was made with %d", disk.ErrDamaged, len(s.b), s.info.SizeLimit)
	case !s.writes():
		return fmt.Errorf("%w: entry %d differs from its checksum", disk.ErrDamaged, s.info.BaseIndex+uint64(len(s.offsets)))
	case sealed && (s.info.IndexStart != uint64(s.index) || s.info.MaxIndex >= s.info.BaseIndex+uint64(len(s.offsets))):
		return fmt.Errorf("%w: what it has from byte %d on differs from its checksum", disk.ErrDamaged, s.end)
	case s.index > 0 || len(bytes.Trim(s.b[s.end:], "\x00")) == 0:
		return nil
	}
	if s.torn = s.maybeTorn(); !s.torn {
		return fmt.Errorf("%w: what it has from byte %d on differs from its checksum", disk.ErrDamaged, s.end)
	}
	return nil
}

// writes goes through the complete writes, the last of which may have an index. It says whether all entries in them are
// what their checksums say.
func (s *segmentReader) writes() bool {
	if !bytes.Equal(s.b[:walHeader], segmentHeader(s.info)) {
		return true
	}
	offsets, index, at := s.offsets, 0, walHeader
	for {
		kind, payload, next := frame(s.b, at)
		switch {
		case kind == walEntryFrame:
			offsets = append(offsets, uint32(at))
		case kind == walIndexFrame && bytes.Equal(payload, indexOf(offsets)):
			index = at + walFrameHeader
		case kind == walCommitFrame && crc32.Checksum(s.b[s.end:at], disk.Castagnoli) == binary.LittleEndian.Uint32(s.b[at+4:]):
			if !s.deliver(offsets[len(s.offsets):]) {
				return false
			}
			s.offsets, s.index, s.end = offsets, index, next
			if index > 0 {
				return true
			}
		default:
			return true
		}
		at = next
	}
}

// deliver hands on the entries of a complete write.
func (s *segmentReader) deliver(offsets []uint32) bool {
	for _, at := range offsets {
		index := s.info.BaseIndex + uint64(len(s.offsets))
		_, payload, _ := frame(s.b, int(at))
		log := new(raft.Log)
		if err := decodeEntry(payload, log); err != nil || log.Index != index || !intact(log) {
			return false
		}
		if index >= s.info.MinIndex && (s.info.MaxIndex == 0 || index <= s.info.MaxIndex) {
			s.each(log)
		}
		s.offsets = append(s.offsets, at)
	}
	return true
}

// maybeTorn says whether what stands behind the last complete write may be part of one that a crash cut off: it lacks
// sectors or its end, and no other write follows it. Anything else was written as a whole, and acknowledged.
func (s *segmentReader) maybeTorn() bool {
	used := s.used()
	for at := s.end; at < used; at += walFrameHeader {
		if kind, _, next := frame(s.b, at); kind == walCommitFrame {
			var log raft.Log
			kind, payload, _ := frame(s.b, next)
			if kind == walEntryFrame && decodeEntry(payload, &log) == nil && intact(&log) {
				return false
			}
		}
	}
	for at := s.end; at < used; {
		next := min(used, (at/sector+1)*sector)
		if len(bytes.Trim(s.b[at:next], "\x00")) == 0 {
			return true
		}
		at = next
	}
	if kind, _, _ := frame(s.b, used-walFrameHeader); kind == walCommitFrame {
		return false
	}
	at := max(s.end, walHeader)
	for at < used {
		kind, _, next := frame(s.b, at)
		if kind != walEntryFrame && kind != walIndexFrame {
			return false
		}
		at = next
	}
	return at >= (used+sector-1)/sector*sector
}

// used is where the last frame ends of which a part was written.
func (s *segmentReader) used() int {
	return (len(bytes.TrimRight(s.b, "\x00")) + walFrameHeader - 1) / walFrameHeader * walFrameHeader
}

func segmentHeader(info types.SegmentInfo) []byte {
	b := binary.LittleEndian.AppendUint64(nil, walMagic)
	b = binary.LittleEndian.AppendUint64(b, info.BaseIndex)
	b = binary.LittleEndian.AppendUint64(b, info.ID)
	return binary.LittleEndian.AppendUint64(b, info.Codec)
}

func indexOf(offsets []uint32) (b []byte) {
	for _, at := range offsets {
		b = binary.LittleEndian.AppendUint32(b, at)
	}
	return b
}

// frame reads the frame at an offset, and where the next one begins; kind 0: there is none.
func frame(b []byte, at int) (kind byte, payload []byte, next int) {
	if at+walFrameHeader > len(b) || b[at+1]|b[at+2]|b[at+3] != 0 {
		return 0, nil, 0
	}
	kind, next = b[at], at+walFrameHeader
	if kind != walEntryFrame && kind != walIndexFrame {
		return kind, nil, next
	}
	size := int(binary.LittleEndian.Uint32(b[at+4:]))
	if size > len(b)-next {
		return 0, nil, 0
	}
	return kind, b[next : next+size], next + (size+walFrameHeader-1)/walFrameHeader*walFrameHeader
}

// encodeEntry encodes an entry as raft-wal's BinaryCodec does.
func encodeEntry(log *raft.Log) []byte {
	b := make([]byte, 0, len(log.Data)+len(log.Extensions)+48)
	for _, n := range []uint64{log.Index, log.Term, uint64(log.Type)} {
		b = binary.AppendUvarint(b, n)
	}
	for _, part := range [][]byte{log.Data, log.Extensions} {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	at, err := log.AppendedAt.AppendBinary(b)
	if err != nil { // of a zone that has seconds
		at, _ = log.AppendedAt.UTC().AppendBinary(b)
	}
	return at
}

var errEntry = fmt.Errorf("%w: it is no entry", disk.ErrDamaged)

// decodeEntry is the inverse of encodeEntry.
func decodeEntry(b []byte, log *raft.Log) error {
	number := func() uint64 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			b = nil
			return 0
		}
		b = b[size:]
		return n
	}
	log.Index, log.Term, log.Type = number(), number(), raft.LogType(number())
	for _, part := range []*[]byte{&log.Data, &log.Extensions} {
		n := number()
		if n > uint64(len(b)) {
			return errEntry
		}
		*part, b = bytes.Clone(b[:n]), b[n:]
	}
	if err := log.AppendedAt.UnmarshalBinary(b); err != nil {
		return fmt.Errorf("%w: %w", errEntry, err)
	}
	return nil
}
