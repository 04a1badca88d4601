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

// raft-wal reads a segment while its frames make sense. It silently drops everything behind a damaged frame,
// cannot tell a lost segment from one that was never made, and cannot recover from a crash between the last write to
// a segment and the entry of the next segment in its list. So we keep the list ourselves, and read every segment,
// compare it with its checksums and mend it before the library sees it.

// The layout of raft-wal's segments (its README): a header, then frames that start at multiples of eight bytes. A write
// ends with a frame that holds the checksum of the write. The last write to a segment carries an index.
const (
	walMagic       = 0x58eb6b0d
	walCodec       = 1  // its BinaryCodec
	walHeader      = 32 // magic and version, base index, id, codec
	walFrameHeader = 8  // kind, three zeros, length or checksum
	walEntryFrame  = 1
	walIndexFrame  = 2
	walCommitFrame = 3
	sector         = 512 // the unit that a disk writes whole or not at all
)

// check reads all segments. It mends the newest one if a crash cut off its last write.
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
		if err == nil && s.mend != nil {
			err = l.files.overwrite(path, s.mend, s.mendAt)
		}
		if err != nil {
			return list, fmt.Errorf("open %s: %w", path, explainBolt(err))
		}
		if newest && s.index > 0 { // the node died before the next one was listed
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
	written int      // end of the last byte that is not zero
	offsets []uint32 // of entries in complete writes
	index   int      // start of the index; 0 if the segment has none
	end     int      // of the last complete write
	// mend must be written at mendAt before anything is appended; nil if no write was cut off.
	mend   []byte
	mendAt int
}

// read reads a segment, and calls each with its entries that belong to the log.
func (s *segmentReader) read(path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it is missing", disk.ErrDamaged)
	}
	if err != nil {
		return err
	}
	return s.examine(b)
}

// examine reads a segment from the bytes of its file.
func (s *segmentReader) examine(b []byte) error {
	size := len(b)
	// A write that grows the file may be cut off within a frame.
	s.b = append(b, make([]byte, -size&(walFrameHeader-1))...)
	s.written = len(bytes.TrimRight(s.b, "\x00"))
	switch sealed := !s.info.SealTime.IsZero(); {
	case size < max(int(s.info.SizeLimit), walHeader):
		return fmt.Errorf("%w: it has %d bytes, and was made with %d", disk.ErrDamaged, size, s.info.SizeLimit)
	case !s.writes():
		return fmt.Errorf("%w: entry %d differs from its checksum", disk.ErrDamaged, s.info.BaseIndex+uint64(len(s.offsets)))
	case sealed && (s.info.IndexStart != uint64(s.index) || s.info.MaxIndex >= s.info.BaseIndex+uint64(len(s.offsets))):
		return fmt.Errorf("%w: what it has from byte %d on differs from its checksum", disk.ErrDamaged, s.end)
	case s.index > 0 || s.written <= s.end:
		return nil
	}
	commit, torn := s.cutOff()
	switch {
	case !torn:
		return fmt.Errorf("%w: what it has from byte %d on differs from its checksum", disk.ErrDamaged, s.end)
	case commit > 0:
		s.mendAt, s.mend = commit, s.commitFrame(commit)
		copy(s.b[commit:], s.mend)
		s.writes()
	default: // the file keeps its size, because a full disk has no room for more
		s.mendAt, s.mend = s.end, make([]byte, min(s.used(), size)-s.end)
	}
	return nil
}

// writes walks the complete writes; the last one may carry an index. It reports whether all their entries match their
// checksums.
func (s *segmentReader) writes() bool {
	if !bytes.Equal(s.b[:walHeader], segmentHeader(s.info)) {
		return true
	}
	offsets, index, at := s.offsets, 0, max(s.end, walHeader)
	for {
		kind, _, next := frame(s.b, at)
		switch {
		case kind == walEntryFrame:
			offsets = append(offsets, uint32(at))
		case kind == walIndexFrame && bytes.Equal(s.b[at:next], indexFrame(offsets)):
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

// cutOff reports whether the bytes behind the last complete write are part of a write that a crash cut off: they
// start like a write, whole sectors or the end may be missing, and nothing follows them. A frame that ends beyond the
// end of the file belongs to such a write. Anything else was written whole and acknowledged. If only a part of the
// commit frame is missing, commit is its offset: the write can be completed, which is right whether or not it was
// acknowledged.
//
// A flipped bit in acknowledged bytes is never mistaken for a cut: entries have checksums of their own, their lengths
// follow from their contents, and the index follows from the entries.
func (s *segmentReader) cutOff() (commit int, torn bool) {
	used, at, offsets, lacks := s.used(), s.end, slices.Clone(s.offsets), false
	if at == 0 {
		var whole bool
		if whole, torn = s.isPartOf(at, segmentHeader(s.info)); !torn {
			return 0, false
		}
		at, lacks = walHeader, !whole
	}
	for at < used {
		kind, size := s.b[at], int(binary.LittleEndian.Uint32(s.b[at+4:]))
		next := at + walFrameHeader + (size+walFrameHeader-1)/walFrameHeader*walFrameHeader
		switch {
		case binary.LittleEndian.Uint64(s.b[at:]) == 0 && s.lost(at):
			return 0, !s.followed()
		case s.b[at+1]|s.b[at+2]|s.b[at+3] != 0:
			return 0, false
		case kind == walEntryFrame:
			whole, part := s.isPartOfEntry(at, next, s.info.BaseIndex+uint64(len(offsets)))
			// or it is a commit frame with another kind
			if !part || !whole && at > s.end && bytes.Equal(s.b[at+4:at+8], s.commitFrame(at)[4:]) {
				return 0, false
			}
			offsets, lacks = append(offsets, uint32(at)), lacks || !whole
		case kind == walIndexFrame:
			index := indexFrame(offsets)
			whole, part := s.isPartOf(at, index)
			if !part {
				return 0, false
			}
			next, lacks = at+len(index), lacks || !whole
		case kind == walCommitFrame && at+walFrameHeader == used && !lacks:
			_, part := s.isPartOf(at, s.commitFrame(at))
			return at, part
		case kind == walCommitFrame && at+walFrameHeader == used:
			return 0, !s.wholeButForABit(at)
		default:
			return 0, false
		}
		at = next
	}
	return 0, true
}

// isPartOf reports whether the bytes at an offset are the wanted ones, wholly or with sectors or the end missing.
func (s *segmentReader) isPartOf(at int, want []byte) (whole, part bool) {
	whole = true
	for i, b := range want {
		if here := at + i; here >= len(s.b) || s.b[here] != b {
			if whole = false; here < s.written && !s.lost(here) {
				return false, false
			}
		}
	}
	return whole, true
}

// isPartOfEntry reports whether the frame between two offsets holds the entry with an index, wholly or with sectors or
// the end missing.
func (s *segmentReader) isPartOfEntry(at, next int, index uint64) (whole, part bool) {
	if s.written <= at+walFrameHeader { // its size may be cut off, too
		return false, true
	}
	if next <= s.used() {
		var log raft.Log
		_, payload, _ := frame(s.b, at)
		padding := s.b[at+walFrameHeader+len(payload) : next]
		if decodeEntry(payload, &log) == nil && log.Index == index && intact(&log) && len(bytes.Trim(padding, "\x00")) == 0 {
			return true, true
		}
	}
	if next < s.used() && !s.lostWithin(at, next) {
		return false, false
	}
	return false, s.fitsSize(at, index)
}

// fitsSize reports whether the size of the frame at an offset follows from the start of the entry in it. Missing bytes
// may be anything.
func (s *segmentReader) fitsSize(at int, index uint64) bool {
	size := uint64(binary.LittleEndian.Uint32(s.b[at+4:]))
	var numbers [4]uint64 // index, term, type, length of the data
	at += walFrameHeader
	end := at + int(size)
	for i := range numbers {
		number, n := binary.Uvarint(s.b[min(at, s.written):s.written])
		if at += n; n <= 0 || s.lost(at-1) {
			return n >= 0
		}
		if numbers[i] = number; numbers[0] != index {
			return false
		}
	}
	if numbers[3] > size {
		return false
	}
	at += int(numbers[3]) + 1 + disk.ChecksumSize // its time zone has seconds
	return end-at == 15 || end-at == 16 && (at >= s.written || s.b[at] == 2 || s.lost(at))
}

// lost reports whether the sector of an offset is all zeros.
func (s *segmentReader) lost(at int) bool {
	from, to := max(s.end, at/sector*sector), min(len(s.b), (at/sector+1)*sector)
	return at < len(s.b) && len(bytes.Trim(s.b[from:to], "\x00")) == 0
}

func (s *segmentReader) lostWithin(from, to int) bool {
	for at := from; at < min(to, len(s.b)); at = (at/sector + 1) * sector {
		if s.lost(at) {
			return true
		}
	}
	return false
}

// followed reports whether a write ends and another one starts behind the last complete one.
func (s *segmentReader) followed() bool {
	for at := s.end; at < s.used(); at += walFrameHeader {
		if kind, _, next := frame(s.b, at); kind == walCommitFrame {
			var log raft.Log
			kind, payload, _ := frame(s.b, next)
			if kind == walEntryFrame && decodeEntry(payload, &log) == nil && intact(&log) {
				return true
			}
		}
	}
	return false
}

// wholeButForABit reports whether flipping one bit completes the write up to a commit frame. Zeros in an entry look
// like missing sectors, and then only this check tells damage from a crash.
func (s *segmentReader) wholeButForABit(commit int) bool {
	differs := binary.LittleEndian.Uint32(s.b[commit+4:]) ^ binary.LittleEndian.Uint32(s.commitFrame(commit)[4:])
	sum := uint32(crc32.Castagnoli) // what the last bit adds to a checksum; each bit before it is one step further
	for bit := commit*8 - 1; bit >= s.end*8; bit-- {
		if sum == differs {
			flipped := segmentReader{info: s.info, each: func(*raft.Log) {}, b: bytes.Clone(s.b), offsets: slices.Clone(s.offsets), end: s.end}
			flipped.b[bit/8] ^= 1 << (bit % 8)
			return flipped.writes() && flipped.end > s.end
		}
		sum = sum>>1 ^ crc32.Castagnoli&-(sum&1)
	}
	return false
}

// used returns the end of the last frame that was written at least in part.
func (s *segmentReader) used() int {
	return (s.written + walFrameHeader - 1) / walFrameHeader * walFrameHeader
}

// commitFrame returns the frame that would end, at an offset, the write behind the last complete one.
func (s *segmentReader) commitFrame(at int) []byte {
	return binary.LittleEndian.AppendUint32([]byte{walCommitFrame, 0, 0, 0}, crc32.Checksum(s.b[s.end:at], disk.Castagnoli))
}

func segmentHeader(info types.SegmentInfo) []byte {
	b := binary.LittleEndian.AppendUint64(nil, walMagic)
	b = binary.LittleEndian.AppendUint64(b, info.BaseIndex)
	b = binary.LittleEndian.AppendUint64(b, info.ID)
	return binary.LittleEndian.AppendUint64(b, info.Codec)
}

func indexFrame(offsets []uint32) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{walIndexFrame, 0, 0, 0}, uint32(4*len(offsets)))
	for _, at := range offsets {
		b = binary.LittleEndian.AppendUint32(b, at)
	}
	return append(b, make([]byte, len(offsets)%2*4)...)
}

// frame reads the frame at an offset and returns the start of the next one. Kind 0 means that no frame starts here.
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
	if err != nil { // a time zone with seconds
		at, _ = log.AppendedAt.UTC().AppendBinary(b)
	}
	return at
}

var errEntry = fmt.Errorf("%w: it is not an entry", disk.ErrDamaged)

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
