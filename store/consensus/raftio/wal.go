package raftio

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/seed-20419f34/rollcall/store/disk"
)

// segmentSize is the size of a file of the log, reserved when the file is created. A new file costs a bbolt
// transaction, and the space of old entries is freed file by file.
const segmentSize = 16 << 20

// mostEntry is the size of the largest entry that raft-wal reads; it would write larger ones. Tests make it smaller.
var mostEntry = segment.MaxEntrySize

// walDir returns the directory below a data directory that holds the segments.
func walDir(dir string) string { return filepath.Join(dir, disk.RaftDir, "wal") }

// keyWAL is the key in log.db for the list of segments. If it is there, the entries are in segments. Versions that do
// not know it refuse to go on, since its value has no checksum that they understand, and show the key.
const keyWAL = "raft.log: the entries are in raft/wal, which this version of rollcall does not read"

// walList is the list of segments, oldest first; only the last one is appended to.
type walList struct {
	types.PersistentState
	// Last is the last index when the log was closed, or 0. Until the list changes it is a lower bound.
	Last uint64
}

// saveList stores the list, which Disk.openWAL reads.
func saveList(bolt *raftboltdb.BoltStore, list walList) error {
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return bolt.Set([]byte(keyWAL), invertSum(disk.Sealed([]byte(keyWAL), b)))
}

// invertSum turns a sealed value into one that disk.Unsealed refuses, and back.
func invertSum(sealed []byte) []byte {
	for i := max(0, len(sealed)-disk.ChecksumSize); i < len(sealed); i++ {
		sealed[i] ^= 0xff
	}
	return sealed
}

// walLog is a log of entries in raft-wal segments, with their list in log.db: a change of the list is one
// transaction, and a segment has its file before it is listed. walcheck.go says why the library's own list and
// recovery are not used.
type walLog struct {
	dir   string
	size  uint32 // of new segments
	bolt  *raftboltdb.BoltStore
	files *segmentFiles
	filer *segment.Filer

	writing sync.Mutex // held by calls that write

	// held for reading while the fields below are read; held for writing, together with writing, while they change
	mu   sync.RWMutex
	list walList
	open map[uint64]types.SegmentReader // readers of the listed segments, by ID
	tail types.SegmentWriter            // one of open; nil if the log is closed
}

// openWAL opens the segments that bolt lists, creates new ones of the given size, and calls each with every entry,
// oldest first.
func openWAL(dir string, bolt *raftboltdb.BoltStore, list walList, size uint32, each func(*raft.Log)) (entryLog, error) {
	l := &walLog{dir: walDir(dir), size: size, bolt: bolt, files: &segmentFiles{sync: syncData}, list: list, open: map[uint64]types.SegmentReader{}}
	l.filer = segment.NewFiler(l.dir, l.files)
	if err := l.start(each); err != nil {
		return nil, errors.Join(err, l.closeAll())
	}
	return l, nil
}

func (l *walLog) start(each func(*raft.Log)) error {
	if len(l.list.Segments) == 0 { // a new log
		if err := errors.Join(os.MkdirAll(l.dir, 0o700), disk.SyncDir(filepath.Dir(l.dir))); err != nil {
			return fmt.Errorf("open log: %w", err)
		}
		return l.change(walList{}, 1)
	}
	list, err := l.check(each)
	if err != nil {
		return err
	}
	for _, info := range list.Segments {
		var err error
		if info.SealTime.IsZero() {
			l.tail, err = l.filer.RecoverTail(info)
			l.open[info.ID] = l.tail
		} else {
			l.open[info.ID], err = l.filer.Open(info)
		}
		if err != nil {
			return fmt.Errorf("open %s: %w", l.path(info), explainBolt(disk.AsDamage(err)))
		}
	}
	if last := list.Segments[len(list.Segments)-1]; !last.SealTime.IsZero() {
		return l.change(list, last.MaxIndex+1)
	}
	return l.removeUnlisted()
}

func (l *walLog) path(info types.SegmentInfo) string {
	return filepath.Join(l.dir, segment.FileName(info))
}

// change replaces the list. If next is not 0, it creates a segment whose first index is next and adds it to the list.
func (l *walLog) change(list walList, next uint64) error {
	tail := l.tail
	list.Segments, list.Last = slices.Clone(list.Segments), 0
	if next > 0 {
		info := types.SegmentInfo{ID: list.NextSegmentID, BaseIndex: next, MinIndex: next, Codec: walCodec, CreateTime: time.Now(), SizeLimit: l.size}
		list.NextSegmentID++
		list.Segments = append(list.Segments, info)
		err := l.files.make(l.path(info), int64(l.size))
		if err == nil {
			tail, err = l.filer.Create(info)
		}
		if err != nil {
			return fmt.Errorf("create a segment: %w", err)
		}
	}
	if err := saveList(l.bolt, list); err != nil {
		return err
	}
	l.put(list, tail)
	return l.removeUnlisted()
}

// put shows readers a list that was stored.
func (l *walLog) put(list walList, tail types.SegmentWriter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list, l.tail = list, tail
	l.open[list.Segments[len(list.Segments)-1].ID] = tail
	for _, info := range list.Segments[:len(list.Segments)-1] {
		if _, writes := l.open[info.ID].(types.SegmentWriter); writes { // its buffers are no longer needed
			if sealed, err := l.filer.Open(info); err == nil {
				l.open[info.ID].Close()
				l.open[info.ID] = sealed
			}
		}
	}
	for id, s := range l.open {
		if !slices.ContainsFunc(list.Segments, func(info types.SegmentInfo) bool { return info.ID == id }) {
			s.Close() // nothing was written since it was synced
			delete(l.open, id)
		}
	}
}

// removeUnlisted removes the files of segments that are no longer listed, or were not yet when the node died.
func (l *walLog) removeUnlisted() error {
	files, err := os.ReadDir(l.dir)
	for _, f := range files {
		listed := slices.ContainsFunc(l.list.Segments, func(info types.SegmentInfo) bool { return segment.FileName(info) == f.Name() })
		if !listed && filepath.Ext(f.Name()) == ".wal" {
			err = errors.Join(err, os.Remove(filepath.Join(l.dir, f.Name())))
		}
	}
	return err
}

// bounds returns the first and the last index, or 0 if the log is empty.
func (l *walLog) bounds() (first, last uint64, err error) {
	if l.tail == nil {
		return 0, 0, os.ErrClosed
	}
	segments := l.list.Segments
	if last = l.tail.LastIndex(); last == 0 {
		if len(segments) == 1 {
			return 0, 0, nil
		}
		last = segments[len(segments)-1].BaseIndex - 1
	}
	return segments[0].MinIndex, last, nil
}

// FirstIndex implements raft.LogStore.
func (l *walLog) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	first, _, err := l.bounds()
	return first, err
}

// LastIndex implements raft.LogStore.
func (l *walLog) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, last, err := l.bounds()
	return last, err
}

// IsMonotonic implements raft.MonotonicLogStore: there can be no gap in the log.
func (l *walLog) IsMonotonic() bool { return true }

// GetLog implements raft.LogStore.
func (l *walLog) GetLog(index uint64, log *raft.Log) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	first, last, err := l.bounds()
	if err != nil {
		return err
	}
	if index == 0 || index < first || index > last {
		return raft.ErrLogNotFound
	}
	for _, info := range slices.Backward(l.list.Segments) {
		if index >= info.BaseIndex {
			b, err := l.open[info.ID].GetLog(index)
			if err != nil {
				return disk.AsDamage(err) // an entry that must be there is not missing, but lost
			}
			defer b.Close()
			return decodeEntry(b.Bs, log)
		}
	}
	return raft.ErrLogNotFound
}

// StoreLog implements raft.LogStore.
func (l *walLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (l *walLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	_, last, err := l.bounds()
	if err != nil {
		return err
	}
	if index := logs[0].Index; last == 0 && index != l.list.Segments[0].BaseIndex || last > 0 && index > last+1 {
		// The log begins here: a snapshot has replaced whatever it had, and the node died before Raft had removed
		// that.
		if err := l.change(walList{PersistentState: types.PersistentState{NextSegmentID: l.list.NextSegmentID}}, index); err != nil {
			return err
		}
	}
	encoded := make([]types.LogEntry, len(logs))
	for i, log := range logs {
		encoded[i] = types.LogEntry{Index: log.Index, Data: encodeEntry(log)}
		if n := len(encoded[i].Data); n > mostEntry {
			return fmt.Errorf("entry %d has %d bytes, and a segment takes one of %d at most", log.Index, n, mostEntry)
		}
	}
	if err := l.tail.Append(encoded); err != nil {
		return err
	}
	if full, _, _ := l.tail.Sealed(); !full {
		return nil
	}
	list, err := l.sealed()
	if err != nil {
		return err
	}
	return l.change(list, l.tail.LastIndex()+1)
}

// sealed returns the list for when nothing more is written to the newest segment.
func (l *walLog) sealed() (list walList, err error) {
	list = l.list
	list.Segments = slices.Clone(list.Segments)
	newest := &list.Segments[len(list.Segments)-1]
	newest.SealTime, newest.MaxIndex = time.Now(), l.tail.LastIndex()
	newest.IndexStart, err = l.tail.ForceSeal()
	return list, err
}

// sliced implements entryLog. Only the list is written, however many entries are deleted.
func (l *walLog) sliced() uint64 { return 1 << 63 }

// DeleteRange implements raft.LogStore. It deletes the oldest entries, or the newest ones.
func (l *walLog) DeleteRange(from, to uint64) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	first, last, err := l.bounds()
	if err != nil {
		return err
	}
	list := l.list
	switch {
	case from > to || to < first || from > last:
		return nil
	case from <= first && to >= last:
		list.Segments = nil
		return l.change(list, last+1)
	case from <= first:
		list.Segments = slices.Clone(slices.DeleteFunc(slices.Clone(list.Segments), func(info types.SegmentInfo) bool { return !info.SealTime.IsZero() && info.MaxIndex <= to }))
		list.Segments[0].MinIndex = max(list.Segments[0].MinIndex, to+1)
		return l.change(list, 0)
	case to < last:
		return fmt.Errorf("entries %d to %d are neither the oldest nor the newest of %d to %d", from, to, first, last)
	}
	if newest := list.Segments[len(list.Segments)-1]; newest.BaseIndex < from { // part of it stays
		if list, err = l.sealed(); err != nil {
			return err
		}
	}
	list.Segments = slices.DeleteFunc(slices.Clone(list.Segments), func(info types.SegmentInfo) bool { return info.BaseIndex >= from })
	list.Segments[len(list.Segments)-1].MaxIndex = from - 1
	return l.change(list, from)
}

// Close implements entryLog. It records how far the log reaches: whatever is missing at the next start, the disk has
// lost.
func (l *walLog) Close() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	_, last, err := l.bounds()
	if err != nil {
		return err
	}
	l.list.Last, l.tail = last, nil
	return errors.Join(saveList(l.bolt, l.list), l.closeAll())
}

func (l *walLog) closeAll() (err error) {
	for _, s := range l.open {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}

// segmentFiles creates and opens the files of segments for raft-wal.
type segmentFiles struct {
	types.VFS
	sync func(*os.File) error // makes durable what was written
}

// segmentFile is the file of one segment.
type segmentFile struct {
	*os.File
	files *segmentFiles
	size  int64 // room reserved
}

// WriteAt implements types.WritableFile. Before a write beyond the file's end it reserves the room, so that a full
// disk refuses it before a byte is written. Nothing relies on that: some file systems promise no room.
func (f *segmentFile) WriteAt(b []byte, at int64) (int, error) {
	if end := at + int64(len(b)); end > f.size {
		if err := allocate(f.File, end); err != nil {
			return 0, err
		}
		f.size = end
	}
	return f.File.WriteAt(b, at)
}

// Sync implements types.WritableFile.
func (f *segmentFile) Sync() error { return f.files.sync(f.File) }

// Create implements types.VFS: make has created the file.
func (s *segmentFiles) Create(dir, name string, _ uint64) (types.WritableFile, error) {
	return s.OpenWriter(dir, name)
}

// OpenReader implements types.VFS.
func (s *segmentFiles) OpenReader(dir, name string) (types.ReadableFile, error) {
	return os.Open(filepath.Join(dir, name))
}

// OpenWriter implements types.VFS.
func (s *segmentFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &segmentFile{f, s, info.Size()}, nil
}

// make creates a file of zeros, durably.
func (s *segmentFiles) make(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600) // a crash may have left one
	if err != nil {
		return err
	}
	if err := errors.Join(allocate(f, size), s.sync(f), f.Close()); err != nil {
		return err
	}
	return disk.SyncDir(filepath.Dir(path))
}

// overwrite replaces the bytes at an offset of a file, durably. A crash in between leaves nothing worse than the
// crash before.
func (s *segmentFiles) overwrite(path string, b []byte, at int) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, int64(at))
	return errors.Join(err, s.sync(f), f.Close())
}
