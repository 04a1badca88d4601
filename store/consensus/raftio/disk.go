package raftio

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// deleteSlice is how many entries one call deletes from bbolt. Each call holds the lock of the file, for which
// appends wait, and is watched separately.
const deleteSlice = 1000

// Disk is the log and stable store with fail-stop: after an error nobody knows what the disk really has (a failed
// fsync may have dropped pages, a failed append may have succeeded), so the first error ends the node. fail is called
// once with the reason.
type Disk struct {
	path string                // path of log.db
	bolt *raftboltdb.BoltStore // log.db: the term and the vote, and which kind of entryLog there is
	conf map[string][]byte     // what bolt held besides entries when it was opened, sealed
	log  entryLog
	fail func(error)
	// Refused is called with an entry from the leader that does not match its checksum. May be nil.
	Refused func(index uint64)
	// Wrote is called with the duration of each call that writes. May be nil.
	Wrote func(time.Duration)
	vote  *uint64 // LastVoteTerm, held back until the candidate is known; owned by Raft's goroutine
	slow  disk.SlowSync

	term    atomic.Uint64 // the node's, as stored
	raising sync.RWMutex  // held for writing while term is raised

	// serving is set once Raft has what it needs to start. Raft must never be told that something it reads later is
	// unreadable.
	serving atomic.Bool
	closed  chan struct{}

	mu       sync.Mutex
	calls    uint64 // started so far
	underWay map[diskCall]struct{}
}

// diskCall is one writing call to the disk.
type diskCall struct {
	number uint64
	name   string
}

// entryLog holds the entries: boltLog in log.db, walLog in files beside it.
type entryLog interface {
	raft.LogStore
	// sliced returns how many entries one call of DeleteRange may delete.
	sliced() uint64
	Close() error
}

// boltLog is the bucket of entries in log.db, which Disk closes.
type boltLog struct{ *raftboltdb.BoltStore }

func (boltLog) sliced() uint64 { return deleteSlice }

func (boltLog) Close() error { return nil }

// logPath returns the file below a data directory that holds the term and the vote, and either the entries or the
// list of their files.
func logPath(dir string) string { return filepath.Join(dir, disk.RaftDir, "log.db") }

// openDisk opens the log below dir, or creates one of the given kind (bolt if empty), and calls each, if not nil,
// with every entry, oldest first. It refuses a log of another kind, unless kind is empty.
func openDisk(dir string, kind store.RaftLog, segmentSize uint32, each func(*raft.Log), fail func(error)) (*Disk, error) {
	path := logPath(dir)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("raft directory: %w", err)
	}
	if err := disk.SyncDir(dir); err != nil {
		return nil, fmt.Errorf("raft directory: %w", err)
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := createLog(dir, kind); err != nil {
			return nil, err
		}
	}
	if each == nil {
		each = func(*raft.Log) {}
	}
	d := &Disk{path: path, fail: fail, underWay: map[diskCall]struct{}{}, closed: make(chan struct{})}
	if err := d.open(dir, kind, segmentSize, each); err != nil {
		return nil, err
	}
	return d, nil
}

// open examines everything in the files, and then opens them.
func (d *Disk) open(dir string, kind store.RaftLog, segmentSize uint32, each func(*raft.Log)) error {
	before, err := os.Stat(d.path)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	entries, err := d.check()
	if err != nil {
		return fmt.Errorf("open %s: %w", d.path, explainBolt(err))
	}
	there := store.LogBolt
	if _, elsewhere := d.conf[keyWAL]; elsewhere {
		there = store.LogWAL
	}
	if kind != "" && kind != there {
		return fmt.Errorf("raft.log is %q, and data directory %s has its log in %q: set raft.log to %[3]s, or convert the log while the node is stopped: rollcall recover --data-dir %[2]s --convert-log %[1]s", kind, dir, there)
	}
	if d.bolt, err = openBolt(d.path); err != nil {
		return fmt.Errorf("open %s: %w", d.path, explainBolt(err))
	}
	// A conversion may have replaced the file while this call waited for its lock.
	if now, err := os.Stat(d.path); err != nil || !os.SameFile(before, now) {
		return errors.Join(fmt.Errorf("%s was replaced while it was opened (%v): start again", d.path, err), d.bolt.Close())
	}
	err = removeUnused(dir, there)
	if err == nil && there == store.LogWAL {
		d.log, err = d.openWAL(dir, segmentSize, each)
	} else if err == nil {
		d.log, err = boltLog{d.bolt}, d.readAll(entries, each)
	}
	if err != nil {
		return errors.Join(err, d.bolt.Close())
	}
	if term, err := d.GetUint64([]byte(keyTerm)); err == nil { // otherwise none was stored so far
		d.term.Store(term)
	}
	return nil
}

// check examines all of log.db, and returns the indexes of the entries in it.
func (d *Disk) check() (entries []uint64, err error) {
	d.conf = map[string][]byte{}
	return entries, disk.CheckBolt(d.path, raftBuckets, func(bucket, key, value []byte) error {
		if string(bucket) == "conf" {
			d.conf[string(key)] = bytes.Clone(value)
			if string(key) == keyWAL {
				return nil // openWAL examines them
			}
			_, err := disk.Unsealed(key, value)
			return err
		}
		if len(key) != 8 {
			return fmt.Errorf("the key of an entry has %d bytes", len(key))
		}
		entries = append(entries, binary.BigEndian.Uint64(key))
		return nil
	})
}

// openWAL opens the segments listed in log.db.
func (d *Disk) openWAL(dir string, segmentSize uint32, each func(*raft.Log)) (entryLog, error) {
	var list walList
	b, err := disk.Unsealed([]byte(keyWAL), invertSum(bytes.Clone(d.conf[keyWAL])))
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", d.path, explainBolt(err))
	}
	return openWAL(dir, d.bolt, list, segmentSize, each)
}

// readAll calls each with the entries in log.db, which have the given indexes.
func (d *Disk) readAll(entries []uint64, each func(*raft.Log)) error {
	for _, index := range entries {
		log := new(raft.Log)
		if err := readLog(d.bolt, index, log); err != nil {
			return fmt.Errorf("open %s: %w", d.path, explainBolt(err))
		}
		each(log)
	}
	return nil
}

// raftBuckets are the buckets of raft-boltdb.
var raftBuckets = [][]byte{[]byte("conf"), []byte("logs")}

func openBolt(path string) (store *raftboltdb.BoltStore, err error) {
	defer disk.RecoverDamage(&err)
	return raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout:        2 * time.Second,
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
		},
		MsgpackUseNewTimeFormat: true,
	})
}

// removeUnused removes what an interrupted conversion left beside a log.
func removeUnused(dir string, there store.RaftLog) error {
	err := os.RemoveAll(logPath(dir) + ".new")
	if there == store.LogBolt {
		err = errors.Join(err, os.RemoveAll(walDir(dir)))
	}
	if err != nil {
		return fmt.Errorf("remove what is left of a conversion: %w", err)
	}
	return nil
}

// explainBolt adds what an operator can do about an unreadable log.
func explainBolt(err error) error {
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return fmt.Errorf("another process has it open (%w)", err)
	case disk.IsOfSystem(err):
		return err
	}
	return fmt.Errorf("the log is corrupt (%w): "+disk.StartEmpty, disk.AsDamage(err))
}

// createLog creates an empty log.
func createLog(dir string, kind store.RaftLog) error {
	if _, err := os.Stat(walDir(dir)); err == nil {
		return fmt.Errorf("open log: %w: %s is missing, and %s is there: "+disk.StartEmpty, disk.ErrDamaged, logPath(dir), walDir(dir))
	}
	err := replaceLog(dir, func(bolt *raftboltdb.BoltStore) error {
		if kind != store.LogWAL {
			return nil
		}
		return saveList(bolt, walList{})
	}, func() {})
	if err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	return nil
}

// replaceLog puts a new log.db, filled by fill, into place. It makes the file under another name first: bbolt's first
// initialisation does not survive a loss of power, a rename does. ready is called before the rename.
func replaceLog(dir string, fill func(*raftboltdb.BoltStore) error, ready func()) error {
	path := logPath(dir)
	tmp := path + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	bolt, err := openBolt(tmp)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(bolt), bolt.Close()); err != nil {
		return err
	}
	ready()
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return disk.SyncDir(filepath.Dir(path))
}

// do runs one writing call, watched and fail-stop.
func (d *Disk) do(name string, call func() error) error {
	d.mu.Lock()
	d.calls++
	c := diskCall{number: d.calls, name: name}
	d.underWay[c] = struct{}{}
	d.mu.Unlock()
	began := time.Now()
	err := d.slow.Do(name, call)
	d.mu.Lock()
	delete(d.underWay, c)
	d.mu.Unlock()
	if d.Wrote != nil {
		d.Wrote(time.Since(began))
	}
	return d.stopOn(name, err)
}

// stopOn ends the node because of an error.
func (d *Disk) stopOn(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
		d.fail(err)
	}
	return err
}

// Started returns how many calls were started so far.
func (d *Disk) Started() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// running returns the calls in progress.
func (d *Disk) running() []diskCall {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.underWay)) // in any order: a watchdog counts each one separately
}

// FirstIndex implements raft.LogStore.
func (d *Disk) FirstIndex() (uint64, error) { return d.log.FirstIndex() }

// LastIndex implements raft.LogStore.
func (d *Disk) LastIndex() (uint64, error) { return d.log.LastIndex() }

// GetLog implements raft.LogStore. Raft panics over some of its errors, and leaves a follower without entries after
// others. So after an error the node ends, once it serves, and this call does not return before that.
func (d *Disk) GetLog(index uint64, log *raft.Log) error {
	err := readLog(d.log, index, log)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	err = fmt.Errorf("read %s: %w", d.path, explainBolt(err))
	if d.serving.Load() {
		d.fail(err)
		<-d.closed
	}
	return err
}

// readLog reads an entry and compares it with its checksum.
func readLog(from raft.LogStore, index uint64, log *raft.Log) (err error) {
	defer disk.RecoverDamage(&err)
	if err := from.GetLog(index, log); errors.Is(err, raft.ErrLogNotFound) {
		return err
	} else if err != nil {
		return disk.AsDamage(fmt.Errorf("entry %d: %w", index, err))
	}
	if log.Index != index || !intact(log) {
		return fmt.Errorf("%w: entry %d differs from its checksum", disk.ErrDamaged, index)
	}
	return nil
}

// entrySum appends the checksum of an entry: CRC-32C over its index, its term, its type and its content. The leader's
// checksum comes with the entry, so each node stores what the leader meant.
func entrySum(dst []byte, log *raft.Log) []byte {
	var head [17]byte
	binary.BigEndian.PutUint64(head[:], log.Index)
	binary.BigEndian.PutUint64(head[8:], log.Term)
	head[16] = byte(log.Type)
	sum := crc32.Update(crc32.Checksum(head[:], disk.Castagnoli), disk.Castagnoli, log.Data)
	return binary.BigEndian.AppendUint32(dst, sum)
}

// intact reports whether an entry matches its checksum.
func intact(log *raft.Log) bool {
	var room [disk.ChecksumSize]byte
	return bytes.Equal(log.Extensions, entrySum(room[:0], log))
}

// seal gives entries their checksums, or compares those that they came with. It returns the first entry that differs.
func seal(logs []*raft.Log) (damaged *raft.Log) {
	sums := make([]byte, 0, len(logs)*disk.ChecksumSize)
	for _, log := range logs {
		start := len(sums)
		sums = entrySum(sums, log)
		own := sums[start:len(sums):len(sums)]
		if len(log.Extensions) > 0 && !bytes.Equal(log.Extensions, own) {
			return log
		}
		log.Extensions = own
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (d *Disk) StoreLog(log *raft.Log) error { return d.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (d *Disk) StoreLogs(logs []*raft.Log) error {
	if damaged := seal(logs); damaged != nil {
		if d.Refused != nil {
			d.Refused(damaged.Index)
		}
		return fmt.Errorf("entry %d does not match the checksum it came with", damaged.Index)
	}
	return d.do("append to the log", func() error { return d.log.StoreLogs(logs) })
}

// DeleteRange implements raft.LogStore. It works in slices, from the end that leaves no gap should the node die in
// between: Raft deletes either the oldest entries or the newest ones.
func (d *Disk) DeleteRange(from, to uint64) error {
	const name = "truncate the log"
	first, err := d.log.FirstIndex()
	if err != nil {
		return d.stopOn(name, err)
	}
	for slice := d.log.sliced(); from <= to; {
		lo, hi := from, from+min(to-from, slice-1)
		if from > first {
			lo, hi = to-min(to-from, slice-1), to
		}
		if err := d.do(name, func() error { return d.log.DeleteRange(lo, hi) }); err != nil {
			return err
		}
		if lo == from {
			from = hi + 1
		} else {
			to = lo - 1
		}
	}
	return nil
}

// IsMonotonic implements raft.MonotonicLogStore.
func (d *Disk) IsMonotonic() bool {
	m, ok := d.log.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// Keys under which hashicorp/raft stores its vote (raft.go, persistVote).
const (
	keyTerm     = "CurrentTerm"
	keyVoteTerm = "LastVoteTerm"
	keyVoteCand = "LastVoteCand"
)

// Set implements raft.StableStore. The vote's candidate is stored before its term, the reverse of raft's order: a
// crash between the two then leaves an old term with a new candidate, which is harmless, instead of a new term with
// the old candidate, which would be granted that vote without a look at its log.
func (d *Disk) Set(key, val []byte) error {
	err := d.do("store the vote", func() error { return d.bolt.Set(key, disk.Sealed(key, val)) })
	if err != nil || string(key) != keyVoteCand || d.vote == nil {
		return err
	}
	term := *d.vote
	d.vote = nil
	return d.do("store the vote", func() error { return d.setUint64([]byte(keyVoteTerm), term) })
}

// Get implements raft.StableStore. A missing key is an error whose text raft compares.
func (d *Disk) Get(key []byte) ([]byte, error) {
	b, err := d.bolt.Get(key)
	if err != nil {
		return nil, err
	}
	return disk.Unsealed(key, b)
}

// SetUint64 implements raft.StableStore.
func (d *Disk) SetUint64(key []byte, val uint64) error {
	if string(key) == keyVoteTerm {
		d.vote = &val
		return nil
	}
	if val == d.term.Load() { // stored already: what During calls sets it again, and must not wait for itself
		return nil
	}
	d.raising.Lock()
	defer d.raising.Unlock()
	return d.do("store the term", func() error {
		if old := d.term.Load(); val < old {
			return fmt.Errorf("%w: from %d to %d", errTermFell, old, val)
		}
		if err := d.setUint64(key, val); err != nil {
			return err
		}
		d.term.Store(val)
		return nil
	})
}

// During calls do if the node is in this term, keeps the term from being raised until do returns, and reports true.
// It does nothing and reports false in any other term, and while the term is being raised.
func (d *Disk) During(term uint64, do func()) bool {
	if !d.raising.TryRLock() {
		return false
	}
	defer d.raising.RUnlock()
	if term != d.term.Load() {
		return false
	}
	do()
	return true
}

func (d *Disk) setUint64(key []byte, val uint64) error {
	return d.bolt.Set(key, disk.Sealed(key, binary.BigEndian.AppendUint64(nil, val)))
}

// errTermFell stops a node from going back to an earlier term: it may have voted in the later one, and linearizable
// reads rely on terms only rising (ADR 2). Raft could set it back, if the transport let it (see
// Transport.SetHeartbeatHandler).
var errTermFell = errors.New("the term would fall")

// GetUint64 implements raft.StableStore.
func (d *Disk) GetUint64(key []byte) (uint64, error) {
	b, err := d.Get(key)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("%w: %q has %d bytes, want 8", disk.ErrDamaged, key, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// failStop is a disk as Raft sees it. Raft panics when the term cannot be written, or an entry cannot be read, and Go
// then exits with a misleading code. By then the disk has ended the node with a reason, and Raft only has to be kept
// from going on. So the calling goroutine ends, running its deferred functions, and Raft's other goroutines see a
// main loop that does not reply until the node has stopped.
type failStop struct{ *Disk }

// SetUint64 implements raft.StableStore.
func (d failStop) SetUint64(key []byte, val uint64) error {
	err := d.Disk.SetUint64(key, val)
	if err != nil {
		runtime.Goexit()
	}
	return err
}

// Stable returns the disk as Raft's stable store.
func (d *Disk) Stable() failStop { return failStop{d} }

// Serve marks that Raft has what it needs to start: anything that cannot be read from now on ends the node.
func (d *Disk) Serve() { d.serving.Store(true) }

// Surround has around make each durable write, before the disk is written to.
func (d *Disk) Surround(around func(name string, write func() error) error) { d.slow.Around = around }

// SlowDown slows each durable write by the given time from now on. 0 ends the delay.
func (d *Disk) SlowDown(by time.Duration) { d.slow.Set(by) }

// Watch notices calls that do not return, until ctx ends.
func (d *Disk) Watch(ctx context.Context) {
	dog := watchdog[diskCall]{limit: hungDisk}
	wait.Every(ctx, watchInterval, func(now time.Time) {
		if call, hangs := dog.overdue(now, d.running()); hangs {
			d.fail(fmt.Errorf("%s takes longer than %v: the disk hangs", call.name, hungDisk))
		}
	})
}

// Close closes the files. Reads that wait because the disk is damaged end.
func (d *Disk) Close() error {
	close(d.closed)
	return errors.Join(d.log.Close(), d.bolt.Close())
}

// Lock keeps every process from opening the log below a directory for writing, until the lock is closed. If the error
// says that another process has the log open, a node runs with the directory.
func Lock(dir string) (io.Closer, error) {
	path := logPath(dir)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, explainBolt(err))
	}
	return db, nil
}
