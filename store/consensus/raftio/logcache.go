package raftio

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/store"
)

// Bounds of what is kept of the log or sent of it at a time. An entry has up to 1.25 MiB.
const (
	cachedLogBytes   = 32 << 20 // in memory, for followers
	appendBytes      = 4 << 20  // in one request to a follower, and in one write to the disk
	MaxAppendEntries = 64       // in one request: Raft reads so many before it is told that fewer fit
)

// Log is Raft's log with its newest entries in memory, bounded by bytes. It knows how many bytes the
// entries have, so that the log can be bounded by bytes too (see watchLog). What a node has from before its
// start it is shown when the disk is opened, so that Raft, which goes through the log twice then, reads little
// from the disk.
type Log struct {
	raft.LogStore // the disk
	// Damaged is called with an entry that memory has lost; nil: nothing is.
	Damaged func(index uint64)
	// Stored is called when entries were stored; nil: nothing is.
	Stored func()

	mu     sync.Mutex
	newest []*raft.Log // in their order, without a gap
	bytes  int         // of newest
	sizes  []logSize   // of what is in the log, in its order
}

type logSize struct {
	index uint64
	bytes int
}

// Open opens the disk of a node, and its log, which is of a kind; empty: of any.
func Open(dir string, kind store.RaftLog, fail func(error)) (*Disk, *Log, error) {
	c := new(Log)
	d, err := openDisk(dir, kind, segmentSize, func(log *raft.Log) { c.add([]*raft.Log{log}) }, fail)
	c.LogStore = d
	return d, c, err
}

// GetLog implements raft.LogStore. What is sent to followers and what is applied is read here, and is what its
// checksum says: an entry that was damaged in memory is read from the disk, and one that is damaged there ends
// the node.
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

// StoreLogs implements raft.LogStore. Each write to the disk is of bounded size, so that it is seen to make
// progress.
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

// fitting is how many of the entries, one at least, are sent or written at a time.
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

// IsMonotonic implements raft.MonotonicLogStore: whether Raft must not leave a gap behind what a snapshot has replaced.
func (c *Log) IsMonotonic() bool {
	m, ok := c.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// BytesAfter is how many bytes the entries after an index have.
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

// Size is how many entries the log has, and their bytes.
func (c *Log) Size() (entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sizes {
		bytes += s.bytes
	}
	return len(c.sizes), bytes
}

// EntriesWithin is how many of the newest entries have so many bytes together; known is false where that is all
// that this node knows of.
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
