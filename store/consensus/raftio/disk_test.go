package raftio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// eachLog runs a test over each kind of log.
func eachLog(t *testing.T, test func(t *testing.T, kind store.RaftLog)) {
	for _, kind := range []store.RaftLog{store.LogBolt, store.LogWAL} {
		t.Run(string(kind), func(t *testing.T) { test(t, kind) })
	}
}

// smallSegments is small enough to split a log of a few hundred entries into several segments.
const smallSegments = 32 << 10

// diskIn opens the log in a directory, and fails the test if the log ever fails.
func diskIn(t *testing.T, dir string, kind store.RaftLog) *Disk {
	t.Helper()
	return need.Got(openDisk(dir, kind, smallSegments, nil, func(err error) { t.Error(err) }))(t)
}

func TestDiskStopsTheNodeAfterEveryFailedWrite(t *testing.T) {
	tests := []struct {
		name string
		do   func(*Disk) error
	}{
		{"append to the log", func(d *Disk) error { return d.StoreLog(&raft.Log{Index: 1, Term: 1}) }},
		{"truncate the log", func(d *Disk) error { return d.DeleteRange(1, 2) }},
		{"store the vote", func(d *Disk) error { return d.Set([]byte(keyVoteCand), []byte("n1")) }},
		{"store the term", func(d *Disk) error { return d.SetUint64([]byte(keyTerm), 7) }},
	}
	eachLog(t, func(t *testing.T, kind store.RaftLog) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				var reason error
				d := need.Got(openDisk(t.TempDir(), kind, smallSegments, nil, func(err error) { reason = err }))(t)
				need.OK(t, d.Close())
				need.That(t, tt.do(d) != nil, "the write succeeded on a closed file")
				expect.That(t, reason != nil && strings.Contains(reason.Error(), tt.name),
					"the node was stopped for %v, want a reason that names %q", reason, tt.name)
			})
		}
	})
}

func TestDiskStopsTheNodeWhenTheTermWouldFall(t *testing.T) {
	var reason error
	d := need.Got(openDisk(t.TempDir(), store.LogBolt, segmentSize, nil, func(err error) { reason = err }))(t)
	defer d.Close()
	for _, term := range []uint64{6, 7, 7} {
		need.OKf(t, d.SetUint64([]byte(keyTerm), term), "store term %d", term)
	}
	if err := d.SetUint64([]byte(keyTerm), 6); !errors.Is(err, errTermFell) || !errors.Is(reason, errTermFell) {
		t.Errorf("storing term 6 after 7: %v, and the node was stopped for %v; want errTermFell for both", err, reason)
	}
	term, err := d.GetUint64([]byte(keyTerm))
	expect.That(t, err == nil && term == 7, "the term is %d (%v), want 7 still", term, err)
}

func TestDiskRaisesTheTermOnlyAfterWhatIsDoneDuringIt(t *testing.T) {
	dir := t.TempDir()
	d := diskIn(t, dir, store.LogBolt)
	need.OK(t, d.SetUint64([]byte(keyTerm), 6))
	need.OK(t, d.Close())
	d = diskIn(t, dir, store.LogBolt) // and knows the term
	defer d.Close()
	expect.That(t, !d.During(5, nil) && !d.During(7, nil), "something was done in another term")
	raised := make(chan error, 1)
	done := d.During(6, func() {
		go func() { raised <- d.SetUint64([]byte(keyTerm), 7) }()
		for d.During(6, func() {}) { // until the term is being raised
			runtime.Gosched()
		}
		expect.Equal(t, need.Got(d.GetUint64([]byte(keyTerm)))(t), 6, "the term, which is being raised, is")
		need.OK(t, d.SetUint64([]byte(keyTerm), 6))
	})
	need.OK(t, <-raised)
	expect.That(t, done && d.During(7, func() {}) && !d.During(6, nil), "done in the first term: %v, want so, and afterwards in the next one only", done)
}

func TestDiskStoresTheVotesCandidateFirst(t *testing.T) {
	d := diskIn(t, t.TempDir(), store.LogBolt)
	defer d.Close()
	vote := func(term uint64, candidate string) {
		t.Helper()
		need.OK(t, d.SetUint64([]byte(keyVoteTerm), term))
		need.OK(t, d.Set([]byte(keyVoteCand), []byte(candidate)))
	}
	vote(4, "n1")
	// A crash between the two writes of the next vote: what was stored so far must not look like a vote for n1 in
	// term 5.
	need.OK(t, d.SetUint64([]byte(keyVoteTerm), 5))
	if term, err := d.bolt.GetUint64([]byte(keyVoteTerm)); err != nil || term != 4 {
		t.Errorf("term %d on disk (%v) before the candidate is, want 4", term, err)
	}
	vote(5, "n2")
	term, errTerm := d.GetUint64([]byte(keyVoteTerm))
	candidate, errCand := d.Get([]byte(keyVoteCand))
	expect.That(t, term == 5 && bytes.Equal(candidate, []byte("n2")) && errTerm == nil && errCand == nil,
		"vote for %q in term %d (%v, %v), want n2 in 5", candidate, term, errTerm, errCand)
}

func TestDamagedLogIsRefusedWithWordsNotWithAPanic(t *testing.T) {
	dir := t.TempDir()
	need.OK(t, diskIn(t, dir, store.LogBolt).Close())
	path := filepath.Join(dir, disk.RaftDir, "log.db")
	size := func() int64 {
		return need.Got(os.Stat(path))(t).Size()
	}()
	need.OK(t, os.WriteFile(path, bytes.Repeat([]byte{0xff}, int(size)), 0o600))
	_, err := openDisk(dir, store.LogBolt, segmentSize, nil, func(error) {})
	expect.That(t, err != nil && strings.Contains(err.Error(), "corrupt"), "got %v, want an error that says corrupt", err)
}

func TestUnfinishedSnapshotsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, disk.RaftDir, "snapshots", "2-17-1.tmp")
	need.OK(t, os.MkdirAll(left, 0o700))
	need.OK(t, RemoveUnfinishedSnapshots(dir))
	_, err := os.Stat(left)
	expect.That(t, os.IsNotExist(err), "%s is still there (%v)", left, err)
}

func TestLogIsDeletedInSlicesThatLeaveNoGap(t *testing.T) {
	const entries = 2*deleteSlice + 500
	tests := []struct {
		name        string
		from, to    uint64
		first, last uint64 // what is left after every slice, and in the end
	}{
		{"the oldest", 1, entries - 10, entries - 9, entries},
		{"the newest", 11, entries, 1, 10},
		{"all", 1, entries, 0, 0},
		{"nothing", 5, 4, 1, entries},
	}
	for kind, slice := range map[store.RaftLog]int{store.LogBolt: deleteSlice, store.LogWAL: entries} {
		for _, tt := range tests {
			t.Run(string(kind)+", "+tt.name, func(t *testing.T) {
				d := diskIn(t, t.TempDir(), kind)
				defer d.Close()
				var logs []*raft.Log
				for i := range uint64(entries) {
					logs = append(logs, &raft.Log{Index: i + 1, Term: 1})
				}
				need.OK(t, d.StoreLogs(logs))
				before := d.calls
				need.OK(t, d.DeleteRange(tt.from, tt.to))
				first, errFirst := d.FirstIndex()
				last, errLast := d.LastIndex()
				expect.That(t, first == tt.first && last == tt.last && errFirst == nil && errLast == nil,
					"the log reaches from %d to %d (%v, %v), want %d to %d", first, last, errFirst, errLast, tt.first, tt.last)
				deleted := int(tt.to + 1 - tt.from)
				got, want := int(d.calls-before), (deleted+slice-1)/slice
				expect.That(t, got == want, "%d entries were deleted in %d calls, want %d", deleted, got, want)
			})
		}
	}
}

func TestDiskThatIsSlowedDownTakesLongerForEachDurableWrite(t *testing.T) {
	tests := []struct {
		name   string
		write  func(*Disk) error
		writes time.Duration // durable ones
	}{
		{"append to the log", func(d *Disk) error { return d.StoreLogs([]*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1}}) }, 1},
		{"truncate the log", func(d *Disk) error { return d.DeleteRange(1, 2) }, 1},
		{"store the term", func(d *Disk) error { return d.SetUint64([]byte(keyTerm), 7) }, 1},
		{"hold the vote's term back", func(d *Disk) error { return d.SetUint64([]byte(keyVoteTerm), 7) }, 0},
		{"store the vote's candidate and term", func(d *Disk) error { return d.Set([]byte(keyVoteCand), []byte("n1")) }, 2},
		{"read", func(d *Disk) error { _, err := d.LastIndex(); return err }, 0},
	}
	eachLog(t, func(t *testing.T, kind store.RaftLog) {
		synctest.Test(t, func(t *testing.T) {
			d := diskIn(t, t.TempDir(), kind)
			defer d.Close()
			for _, tt := range tests {
				d.slow.Set(time.Second)
				got, want := timedOf(t, func() error { return tt.write(d) }), tt.writes*time.Second
				expect.That(t, got == want, "%s: it takes %v longer, want %v", tt.name, got, want)
			}
			d.slow.Set(0)
			expect.Equal(t, timedOf(t, func() error { return d.StoreLog(&raft.Log{Index: 3, Term: 1}) }), 0, "after the end of the delay a write takes longer by")
		})
	})
}

// Time stands still in a bubble while the disk really works.
func timedOf(t *testing.T, write func() error) time.Duration {
	t.Helper()
	began := time.Now()
	need.OK(t, write())
	return time.Since(began)
}

// The file system restores each directory to what it had when it was last synced.
func TestSnapshotHasItsFilesAfterALossOfPower(t *testing.T) {
	dir := t.TempDir()
	need.OK(t, os.Mkdir(filepath.Join(dir, disk.RaftDir), 0o700))
	opened := need.Got(OpenSnapshots(dir, 2, hclog.NewNullLogger()))(t).(snapshots)
	synced := map[string][]string{}
	opened.sync = func(path string) error {
		for _, f := range need.Got(os.ReadDir(path))(t) {
			synced[path] = append(synced[path], f.Name())
		}
		return disk.SyncDir(path)
	}
	for index := range uint64(4) {
		sink := need.Got(opened.Create(1, index+1, 1, raft.Configuration{}, 1, nil))(t)
		expect.Slice(t, synced[unfinished(dir, sink.ID())], []string{"meta.json", "state.bin"}, "files that are durable before the snapshot has its name")
		need.Got(io.WriteString(sink, "a state"))(t)
		need.OK(t, sink.Close())
	}
	expect.Equal(t, len(need.Got(opened.List())(t)), 2, "snapshots")
}

// Here the sync of its directory fails.
func TestSnapshotThatIsNotDurableDoesNotCount(t *testing.T) {
	dir := t.TempDir()
	need.OK(t, os.Mkdir(filepath.Join(dir, disk.RaftDir), 0o700))
	opened := need.Got(OpenSnapshots(dir, 2, hclog.NewNullLogger()))(t).(snapshots)
	broken := errors.New("the disk is broken")
	opened.sync = func(string) error { return broken }
	expect.ErrorIs(t, expect.Err(opened.Create(1, 1, 1, raft.Configuration{}, 1, nil)), broken, "the snapshot was begun")
	expect.Equal(t, len(need.Got(os.ReadDir(filepath.Join(dir, disk.RaftDir, "snapshots")))(t)), 0, "what is left")
}

// TestMain fails if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// writtenLog writes a log with several levels of pages, or several segments, and a vote; parts of it were deleted and
// rewritten.
func writtenLog(t *testing.T, kind store.RaftLog) (dir string) {
	t.Helper()
	dir = t.TempDir()
	d := diskIn(t, dir, kind)
	d.bolt.StoreLogs(nil) // a transaction, as each start makes one
	err := errors.Join(d.SetUint64([]byte(keyTerm), 7), d.SetUint64([]byte(keyVoteTerm), 7), d.Set([]byte(keyVoteCand), []byte("n1")))
	for index := uint64(1); index <= 200; index += 20 {
		var logs []*raft.Log
		for i := index; i < index+20; i++ {
			logs = append(logs, &raft.Log{Index: i, Term: 7, Type: raft.LogCommand, Data: bytes.Repeat([]byte{byte(i)}, int(i*37%900)), AppendedAt: time.Unix(1, 0)})
		}
		logs[0].Data = bytes.Repeat([]byte("a large one "), 1000)
		err = errors.Join(err, d.StoreLogs(logs))
	}
	anew := &raft.Log{Index: 181, Term: 8, Data: bytes.Repeat([]byte("anew "), 1000)}
	need.OK(t, errors.Join(err, d.DeleteRange(1, 70), d.DeleteRange(181, 200), d.StoreLog(anew), d.Close()))
	return dir
}

// logOnDisk describes everything that Raft reads from a log.
func logOnDisk(dir string) (said string, err error) {
	d, err := openDisk(dir, "", smallSegments, nil, func(error) {})
	if err != nil {
		return "", err
	}
	defer d.Close()
	term, errTerm := d.GetUint64([]byte(keyTerm))
	voted, errVoted := d.GetUint64([]byte(keyVoteTerm))
	candidate, errCand := d.Get([]byte(keyVoteCand))
	first, errFirst := d.FirstIndex()
	last, errLast := d.LastIndex()
	text := fmt.Sprintln(term, errTerm, voted, errVoted, candidate, errCand, first, errFirst, last, errLast)
	for i := first; i <= last; i++ {
		var log raft.Log
		err := d.GetLog(i, &log)
		log.AppendedAt = time.Time{} // nothing depends on it
		text += fmt.Sprintln(log, err)
	}
	return text, nil
}

func TestDiskRefusesADamagedLogInWordsOrReadsItAsItWasWritten(t *testing.T) {
	eachLog(t, func(t *testing.T, kind store.RaftLog) {
		dir := writtenLog(t, kind)
		want := need.Got(logOnDisk(dir))(t)
		files := []string{filepath.Join(disk.RaftDir, "log.db")}
		for _, path := range segmentsIn(t, dir) {
			files = append(files, filepath.Join(disk.RaftDir, "wal", filepath.Base(path)))
		}
		need.That(t, (len(files) > 3) == (kind == store.LogWAL), "the log has the files %v", files)
		for _, file := range files {
			whole := need.Got(os.ReadFile(filepath.Join(dir, file)))(t)
			refused := 0
			golden.EachDamage(t, dir, file, func(t *testing.T, dir, how string) {
				got, err := logOnDisk(dir)
				switch {
				case err == nil && got != want:
					t.Errorf("%s: %s: the log has something else than was written", file, how)
				case err != nil && (!strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "empty data directory") || !errors.Is(err, disk.ErrDamaged)):
					t.Errorf("%s: %s: got %v, want an error that names the file and says what to do", file, how, err)
				case err != nil:
					refused++
				}
			})
			expect.That(t, refused >= golden.Damages/4, "%s: %d of %d damages were refused, want most of those that hit something", file, refused, golden.Damages)
			need.OK(t, os.WriteFile(filepath.Join(dir, file), whole, 0o600))
		}
	})
}

// segmentsIn returns the files of entries below a data directory, oldest first.
func segmentsIn(t *testing.T, dir string) []string {
	t.Helper()
	return need.Got(filepath.Glob(filepath.Join(walDir(dir), "*.wal")))(t)
}

func TestDiskNamesAnEntryWithAFlippedBit(t *testing.T) {
	dir := t.TempDir()
	d := diskIn(t, dir, store.LogBolt)
	value := []byte("a value of 1000")
	need.OK(t, errors.Join(d.StoreLog(&raft.Log{Index: 17, Term: 1, Data: value}), d.Close()))
	path := filepath.Join(dir, disk.RaftDir, "log.db")
	b := need.Got(os.ReadFile(path))(t)
	at := bytes.Index(b, value)
	for ; at >= 0; at = bytes.Index(b, value) { // older pages have it too
		b[at+11] = '9'
	}
	need.OK(t, os.WriteFile(path, b, 0o600))
	_, err := openDisk(dir, store.LogBolt, segmentSize, nil, func(error) {})
	expect.That(t, errors.Is(err, disk.ErrDamaged) && strings.Contains(err.Error(), path) && strings.Contains(err.Error(), "entry 17 ") && strings.Contains(err.Error(), "empty data directory"),
		"got %v, want an error that names %s and entry 17, and says what to do", err, path)
}

func TestDiskStopsTheNodeWhenItReadsADamagedEntryLater(t *testing.T) {
	failed := make(chan error, 1)
	d := need.Got(openDisk(t.TempDir(), store.LogBolt, segmentSize, nil, func(err error) { failed <- err }))(t)
	entry := &raft.Log{Index: 5, Term: 1, Data: []byte("x")}
	need.OK(t, d.StoreLog(entry))
	entry.Data = []byte("y")
	if err := d.bolt.StoreLog(entry); err != nil { // past the checksum
		t.Fatal(err)
	}
	expect.ErrorIs(t, d.GetLog(5, new(raft.Log)), disk.ErrDamaged, "at the start: got")
	d.serving.Store(true)
	returned := make(chan struct{})
	go func() { d.GetLog(5, new(raft.Log)); close(returned) }()
	if err := <-failed; !errors.Is(err, disk.ErrDamaged) || !strings.Contains(err.Error(), "log.db") || !strings.Contains(err.Error(), "entry 5 ") {
		t.Errorf("the node was stopped for %v, want a reason that names log.db and entry 5", err)
	}
	expect.ErrorIs(t, d.GetLog(6, new(raft.Log)), raft.ErrLogNotFound, "an entry that there is not: got")
	select {
	case <-returned:
		t.Error("it returned, and raft would have ended the process with a panic")
	default:
	}
	expect.OK(t, d.Close())
	<-returned
}

func TestDiskRefusesAnEntryThatArrivesDamagedAndGoesOn(t *testing.T) {
	d := diskIn(t, t.TempDir(), store.LogBolt)
	defer d.Close()
	entry := &raft.Log{Index: 5, Term: 1, Data: []byte("x")}
	seal([]*raft.Log{entry})
	for name, damage := range map[string]func(*raft.Log){
		"index": func(l *raft.Log) { l.Index++ }, "term": func(l *raft.Log) { l.Term++ },
		"type": func(l *raft.Log) { l.Type++ }, "content": func(l *raft.Log) { l.Data = []byte("y") },
	} {
		damaged := *entry
		damage(&damaged)
		expect.That(t, d.StoreLog(&damaged) != nil, "%s: it was stored", name)
	}
	expect.OK(t, d.StoreLog(entry))
	last, err := d.LastIndex()
	expect.That(t, err == nil && last == 5, "last index %d, %v, want 5", last, err)
}
