package raftio

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/store"
)

// Bounds on how much of the log is kept or sent at a time. An entry has up to 1.25 MiB.
const (
	cachedLogBytes   = 32 << 20 // in memory, for followers
	appendBytes      = 4 << 20  // in one request to a follower, and in one write to the disk
	MaxAppendEntries = 64       // in one request: Raft reads so many before it learns that fewer fit
)

// Log is Raft's log with its newest entries in memory, bounded by bytes. It knows how many bytes the entries have, so
// that the log can be bounded by bytes too (see watchLog). Entries from before the node's start are shown to it when
// the disk is opened: Raft then goes through the log twice, and reads little of it from the disk.
type Log struct {
	raft.LogStore // the disk
	// Damaged is called with an entry that was damaged in memory. May be nil.
	Damaged func(index uint64)
	// Stored is called when entries were stored. May be nil.
	Stored func()

	mu     sync.Mutex
	newest []*raft.Log // in order, without a gap
	bytes  int         // total size of newest
	sizes  []logSize   // sizes of the entries in the log, in order
}

type logSize struct {
	index uint64
	bytes int
}

// Open opens the disk of a node, and its log of the given kind; any kind if empty.
func Open(dir string, kind store.RaftLog, fail func(error)) (*Disk, *Log, error) {
	c := new(Log)
	d, err := openDisk(dir, kind, segmentSize, func(log *raft.Log) { c.add([]*raft.Log{log}) }, fail)
	c.LogStore = d
	return d, c, err
}

// GetLog implements raft.LogStore. Entries that are sent to followers or applied are read here, and checked: an entry
// that was damaged in memory is read from the disk, and one that is damaged there ends the node.
func (c *Log) GetLog(index uint64, log *raft.Log) error {
	if cached := c.cached(index); cached != nil {
		if intact(cached) {
			*log = *cached
			return nil
		}
		if c.Damaged != nil {
			c.Damaged(index)
		}
	}
	return c.LogStore.GetLog(index, log)
}

func (c *Log) cached(index uint64) *raft.Log {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.newest) == 0 || index < c.newest[0].Index || index-c.newest[0].Index >= uint64(len(c.newest)) {
		return nil
	}
	return c.newest[index-c.newest[0].Index]
}

// StoreLog implements raft.LogStore.
func (c *Log) StoreLog(log *raft.Log) error { return c.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore. Each write to the disk is of bounded size, so that progress is visible.
func (c *Log) StoreLogs(logs []*raft.Log) error {
	for len(logs) > 0 {
		n := fitting(logs)
		if err := c.LogStore.StoreLogs(logs[:n]); err != nil {
			return err
		}
		c.add(logs[:n])
		logs = logs[n:]
	}
	if c.Stored != nil {
		c.Stored()
	}
	return nil
}

// fitting returns how many of the entries, at least one, are sent or written at a time.
func fitting(logs []*raft.Log) int {
	bytes := 0
	for i, log := range logs {
		if bytes += len(log.Data); bytes > appendBytes && i > 0 {
			return i
		}
	}
	return len(logs)
}

func (c *Log) add(logs []*raft.Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, log := range logs {
		if n := len(c.newest); n > 0 && c.newest[n-1].Index+1 != log.Index {
			c.newest, c.bytes = nil, 0
		}
		c.newest = append(c.newest, log)
		c.bytes += len(log.Data)
		c.sizes = append(c.sizes, logSize{log.Index, len(log.Data)})
	}
	drop := 0
	for c.bytes > cachedLogBytes && drop < len(c.newest)-1 {
		c.bytes -= len(c.newest[drop].Data)
		drop++
	}
	clear(c.newest[:drop]) // append keeps the array for a while
	c.newest = c.newest[drop:]
}

// DeleteRange implements raft.LogStore.
func (c *Log) DeleteRange(from, to uint64) error {
	c.mu.Lock()
	c.newest, c.bytes = nil, 0
	c.sizes = slices.DeleteFunc(c.sizes, func(s logSize) bool { return s.index >= from && s.index <= to })
	c.mu.Unlock()
	return c.LogStore.DeleteRange(from, to)
}

// IsMonotonic implements raft.MonotonicLogStore. It reports whether Raft must not leave a gap after what a snapshot
// has replaced.
func (c *Log) IsMonotonic() bool {
	m, ok := c.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// BytesAfter returns how many bytes the entries after an index have.
func (c *Log) BytesAfter(index uint64) (bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range slices.Backward(c.sizes) {
		if s.index <= index {
			break
		}
		bytes += s.bytes
	}
	return bytes
}

// Size returns the number of entries in the log, and their bytes.
func (c *Log) Size() (entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sizes {
		bytes += s.bytes
	}
	return len(c.sizes), bytes
}

// EntriesWithin returns how many of the newest entries fit into the given number of bytes. known is false if that is
// every entry whose size this node knows.
func (c *Log) EntriesWithin(bytes int) (entries uint64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range slices.Backward(c.sizes) {
		if bytes -= s.bytes; bytes < 0 {
			return entries, true
		}
		entries++
	}
	return entries, false
}
