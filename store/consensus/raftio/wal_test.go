package raftio

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// numbered returns n entries of a term from an index on, each of the given size.
func numbered(from uint64, n int, term uint64, size int) (logs []*raft.Log) {
	for i := range uint64(n) {
		logs = append(logs, &raft.Log{Index: from + i, Term: term, Data: bytes.Repeat([]byte{byte(from+i) | 1}, size)})
	}
	return logs
}

// crashed copies a data directory as a node leaves it that is killed now.
func crashed(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "crashed")
	need.OK(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// termsIn returns what a log has: the first index, and the term of each entry.
func termsIn(t *testing.T, d *Disk) (first uint64, terms string) {
	t.Helper()
	first = need.Got(d.FirstIndex())(t)
	last := need.Got(d.LastIndex())(t)
	for i := first; i <= last && i > 0; i++ {
		var log raft.Log
		need.OK(t, d.GetLog(i, &log))
		terms += fmt.Sprint(log.Term)
	}
	return first, terms
}

// mustHave opens a log, checks that it has entries of these terms from an index on, appends to it, and opens it
// again.
func mustHave(t *testing.T, dir string, first uint64, terms string) {
	t.Helper()
	for i, want := range []string{terms, terms + "9"} {
		shown := ""
		d := need.Got(openDisk(dir, store.LogWAL, smallSegments, func(log *raft.Log) { shown += fmt.Sprint(log.Term) }, func(err error) { t.Error(err) }))(t)
		gotFirst, got := termsIn(t, d)
		need.Equal(t, shown, want, "the entries at the start are")
		need.That(t, got == want && (gotFirst == first || want == ""), "the log has %q from %d on, want %q from %d on", got, gotFirst, want, first)
		if i == 0 {
			need.OK(t, d.StoreLogs(numbered(first+uint64(len(terms)), 1, 9, 100)))
		}
		need.OK(t, d.Close())
	}
}

// Each file is restored to what it had when it was last synced.
func TestSegmentsHaveAfterALossOfPowerWhatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	d := diskIn(t, dir, store.LogWAL)
	defer d.Close()
	synced := map[string][]byte{} // the empty segment of the start is there
	for _, path := range segmentsIn(t, dir) {
		synced[filepath.Base(path)] = need.Got(os.ReadFile(path))(t)
	}
	d.log.(*walLog).files.sync = func(f *os.File) error {
		synced[filepath.Base(f.Name())] = need.Got(os.ReadFile(f.Name()))(t)
		return nil
	}
	first, terms := uint64(1), ""
	check := func() {
		t.Helper()
		after := crashed(t, dir)
		for _, path := range segmentsIn(t, after) {
			b, ok := synced[filepath.Base(path)]
			if !ok {
				need.OK(t, os.Remove(path))
				continue
			}
			need.OK(t, os.WriteFile(path, b, 0o600))
		}
		mustHave(t, after, first, terms)
	}
	for round := range uint64(6) {
		term := round + 1
		for range 7 {
			need.OK(t, d.StoreLogs(numbered(first+uint64(len(terms)), 3, term, 900)))
			terms += strings.Repeat(fmt.Sprint(term), 3)
			check()
		}
		last := first + uint64(len(terms)) - 1
		need.OK(t, d.DeleteRange(last-4, last)) // as for another leader's entries
		terms = terms[:len(terms)-5]
		check()
		need.OK(t, d.DeleteRange(first, first+9)) // as after a snapshot
		first, terms = first+10, terms[10:]
		check()
	}
	expect.That(t, len(segmentsIn(t, dir)) > 3, "the log has %d segments, want several", len(segmentsIn(t, dir)))
}

// A crash leaves any subset of the zeros that the mending writes.
func TestSegmentIsMendedAfterACrashWhileItWasMended(t *testing.T) {
	dir := t.TempDir()
	d := diskIn(t, dir, store.LogWAL)
	defer d.Close()
	need.OK(t, d.StoreLogs(numbered(1, 3, 1, 700)))
	path := segmentsIn(t, dir)[0]
	from := len(bytes.TrimRight(need.Got(os.ReadFile(path))(t), "\x00"))
	need.OK(t, d.StoreLogs(numbered(4, 4, 2, 700)))
	torn := need.Got(os.ReadFile(path))(t)
	to := len(bytes.TrimRight(torn, "\x00"))
	middle := (from + to) / 2 / sector * sector
	clear(torn[middle : middle+sector])
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		b := bytes.Clone(torn)
		for at := from; at < to; at = (at/sector + 1) * sector {
			if random.IntN(2) == 0 {
				clear(b[at:min(to, (at/sector+1)*sector)])
			}
		}
		after := crashed(t, dir)
		need.OK(t, os.WriteFile(filepath.Join(walDir(after), filepath.Base(path)), b, 0o600))
		mustHave(t, after, 1, "111")
		mended := need.Got(os.Stat(filepath.Join(walDir(after), filepath.Base(path))))(t)
		need.Equal(t, mended.Size(), int64(len(torn)), "bytes of the mended segment:")
	}
}

// The node dies between the last write to a segment, or the seal of a segment that is cut, and the new list.
func TestSegmentsGoOnWhenTheListCouldNotBeStored(t *testing.T) {
	fill := func(d *Disk) error {
		for i := range uint64(36) {
			if err := d.StoreLogs(numbered(i+1, 1, 1, 900)); err != nil {
				return err
			}
		}
		return nil
	}
	tests := []struct {
		name  string
		do    func(*Disk) error
		terms int // how many entries there are afterwards
	}{
		{"a segment is full", fill, 35},
		{"the newest entries are deleted", func(d *Disk) error { return d.DeleteRange(3, 5) }, 5},
		{"the oldest entries are deleted", func(d *Disk) error { return d.DeleteRange(1, 3) }, 5},
		{"all entries are deleted", func(d *Disk) error { return d.DeleteRange(1, 5) }, 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			var reason error
			d := need.Got(openDisk(dir, store.LogWAL, smallSegments, nil, func(err error) { reason = err }))(t)
			if tt.terms == 5 {
				need.OK(t, d.StoreLogs(numbered(1, 5, 1, 100)))
			}
			need.OK(t, d.bolt.Close())
			expect.That(t, tt.do(d) != nil && reason != nil, "the node was not stopped: %v", reason)
			mustHave(t, dir, 1, strings.Repeat("1", tt.terms))
			need.OK(t, d.log.(*walLog).closeAll())
		})
	}
}

func TestSegmentsGoOnWhenTheNextOneCouldNotBeMade(t *testing.T) {
	dir := t.TempDir()
	var reason error
	d := need.Got(openDisk(dir, store.LogWAL, smallSegments, nil, func(err error) { reason = err }))(t)
	d.log.(*walLog).files.sync = func(f *os.File) error {
		if filepath.Base(f.Name()) != filepath.Base(segmentsIn(t, dir)[0]) {
			return errors.Join(errors.New("no space"), os.Remove(f.Name()))
		}
		return nil
	}
	last := uint64(0)
	for ; reason == nil && last < 100; last++ {
		d.StoreLog(numbered(last+1, 1, 1, 900)[0])
	}
	expect.That(t, reason != nil && strings.Contains(reason.Error(), "append to the log: create a segment: no space"), "the node was stopped for %v after %d entries", reason, last)
	need.OK(t, d.bolt.Close())
	mustHave(t, dir, 1, strings.Repeat("1", int(last)))
	need.OK(t, d.log.(*walLog).closeAll())
}

func TestSegmentThatIsMissingOrShortIsRefused(t *testing.T) {
	for name, do := range map[string]func(path string) error{
		"missing": os.Remove,
		"short":   func(path string) error { return os.Truncate(path, smallSegments-1) },
		"empty":   func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := writtenLog(t, store.LogWAL)
			for _, path := range segmentsIn(t, dir) {
				after := crashed(t, dir)
				path = filepath.Join(walDir(after), filepath.Base(path))
				need.OK(t, do(path))
				_, err := logOnDisk(after)
				expect.That(t, errors.Is(err, disk.ErrDamaged) && strings.Contains(err.Error(), path) && strings.Contains(err.Error(), "empty data directory"),
					"got %v, want damage of %s", err, path)
			}
		})
	}
}

// A snapshot of the leader has replaced the log, and the node died before Raft had removed what it had.
func TestSegmentsStartAfreshBehindAGap(t *testing.T) {
	dir := t.TempDir()
	d := diskIn(t, dir, store.LogWAL)
	need.OK(t, errors.Join(d.StoreLogs(numbered(1, 50, 1, 900)), d.StoreLogs(numbered(1001, 2, 2, 900)), d.Close()))
	mustHave(t, dir, 1001, "22")
	expect.Equal(t, len(segmentsIn(t, dir)), 1, "files")
}

func TestRaftIsToldWhetherTheLogMayHaveAGap(t *testing.T) {
	eachLog(t, func(t *testing.T, kind store.RaftLog) {
		d, log, err := Open(t.TempDir(), kind, func(err error) { t.Error(err) })
		need.OK(t, err)
		defer d.Close()
		var given raft.LogStore = log // as Raft gets it
		monotonic, ok := given.(raft.MonotonicLogStore)
		expect.That(t, ok && monotonic.IsMonotonic() == (kind == store.LogWAL), "monotonic: %v", ok && monotonic.IsMonotonic())
	})
}

func TestLogOfAnotherKindIsRefused(t *testing.T) {
	for there, wanted := range map[store.RaftLog]store.RaftLog{store.LogBolt: store.LogWAL, store.LogWAL: store.LogBolt} {
		dir := t.TempDir()
		need.OK(t, diskIn(t, dir, there).Close())
		_, err := openDisk(dir, wanted, smallSegments, nil, nil)
		want := fmt.Sprintf("raft.log is %q, and data directory %s has its log in %q: set raft.log to %[3]s, or convert the log while the node is stopped: rollcall recover --data-dir %[2]s --convert-log %[1]s", wanted, dir, there)
		need.ErrorSays(t, err, want, "a log of %s that is to be one of %s", there, wanted)
	}
}

// It reads log.db as this version does, without knowing the key of the list.
func TestAnOlderVersionRefusesALogInSegments(t *testing.T) {
	dir := writtenLog(t, store.LogWAL)
	err := disk.CheckBolt(logPath(dir), raftBuckets, func(bucket, key, value []byte) error {
		_, err := disk.Unsealed(key, value)
		return err
	})
	expect.That(t, errors.Is(err, disk.ErrDamaged) && strings.Contains(err.Error(), "the entries are in raft/wal, which this version of rollcall does not read"), "got %v, want words about raft/wal", err)
}

func other(kind store.RaftLog) store.RaftLog {
	if kind == store.LogBolt {
		return store.LogWAL
	}
	return store.LogBolt
}

func TestConvertedLogHasTheSameEntriesAndVote(t *testing.T) {
	eachLog(t, func(t *testing.T, kind store.RaftLog) {
		dir := writtenLog(t, kind)
		want := need.Got(logOnDisk(dir))(t)
		for _, to := range []store.RaftLog{other(kind), kind} {
			entries, err := convert(dir, to, smallSegments)
			need.That(t, err == nil && entries == 111, "to %s: %d entries, %v, want 111", to, entries, err)
			need.OK(t, diskIn(t, dir, to).Close())
			expect.Equal(t, need.Got(logOnDisk(dir))(t), want, "%s has", to)
			expect.That(t, (len(segmentsIn(t, dir)) > 0) == (to == store.LogWAL), "to %s: there are the segments %v", to, segmentsIn(t, dir))
			_, err = convert(dir, to, smallSegments)
			need.ErrorSays(t, err, fmt.Sprintf("convert the log: data directory %s has its log in %q already", dir, to), "converted twice")
		}
	})
}

func TestConvertedLogLeavesWhatASnapshotHasReplaced(t *testing.T) {
	dir := t.TempDir()
	d := diskIn(t, dir, store.LogBolt)
	need.OK(t, errors.Join(d.StoreLogs(numbered(1, 50, 1, 100)), d.StoreLogs(numbered(101, 3, 2, 100)), d.Close()))
	expect.Equal(t, need.Got(convert(dir, store.LogWAL, smallSegments))(t), uint64(3), "entries")
	mustHave(t, dir, 101, "222")
}

func TestConvertRefusesADirectoryWithoutALogOrInUse(t *testing.T) {
	dir := t.TempDir()
	if _, err := Convert(dir, store.LogWAL); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of an empty directory: %v, want that there is no log", err)
	}
	eachLog(t, func(t *testing.T, kind store.RaftLog) {
		dir := t.TempDir()
		d := diskIn(t, dir, kind)
		defer d.Close()
		_, err := Convert(dir, other(kind))
		expect.That(t, err != nil && strings.Contains(err.Error(), "another process has it open"), "got %v, want that it is in use", err)
	})
}

// On a full disk the node could not start with the leftovers in the way.
func TestConversionThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	d := diskIn(t, dir, store.LogBolt)
	need.OK(t, d.StoreLogs(numbered(1, 3, 1, 700)))
	need.OK(t, d.StoreLogs(numbered(4, 1, 1, 1<<20)))
	need.OK(t, d.Close())
	defer func(most int) { mostEntry = most }(mostEntry)
	mostEntry = 1 << 20
	expect.That(t, expect.Err(Convert(dir, store.LogWAL)) != nil, "an entry that no segment takes was converted")
	left := need.Got(filepath.Glob(filepath.Join(filepath.Dir(walDir(dir)), "*")))(t)
	expect.That(t, len(left) == 1 && left[0] == logPath(dir), "%v is left, want the log alone", left)
	after := diskIn(t, dir, store.LogBolt)
	defer after.Close()
	expect.Equal(t, need.Got(after.LastIndex())(t), 4, "the last entry:")
}

// work is the environment variable that turns this test into a process that works on a log until it is killed.
const work = "ROLLCALL_TEST_WORK_ON_A_LOG"

// It kills, at random moments, a process that appends, deletes and converts.
func TestLogHasWhatWasAcknowledgedAfterKills(t *testing.T) {
	if dir := os.Getenv(work); dir != "" {
		workOn(dir)
		return
	}
	dir := t.TempDir()
	need.OK(t, diskIn(t, dir, store.LogBolt).Close())
	kinds := map[store.RaftLog]int{}
	for range 40 {
		acked := killedWork(t, dir)
		d := need.Got(openDisk(dir, "", smallSegments, nil, func(err error) { t.Error(err) }))(t)
		first, last := need.Got(d.FirstIndex())(t), need.Got(d.LastIndex())(t)
		need.That(t, first <= acked.first && last >= acked.last, "the log reaches from %d to %d, and %d to %d was acknowledged", first, last, acked.first, acked.last)
		for i := acked.first; i <= acked.last && i > 0; i++ {
			var log raft.Log
			need.OKf(t, d.GetLog(i, &log), "entry %d, which was acknowledged", i)
		}
		term, err := d.GetUint64([]byte(keyTerm))
		need.That(t, err == nil && term >= acked.term, "the term is %d (%v), want %d", term, err, acked.term)
		if _, ok := d.log.(*walLog); ok {
			kinds[store.LogWAL]++
		} else {
			kinds[store.LogBolt]++
		}
		need.OK(t, d.Close())
	}
	t.Logf("killed with %v", kinds)
}

// ack is what the process has acknowledged.
type ack struct{ first, last, term uint64 }

// killedWork runs the process for a while, and kills it.
func killedWork(t *testing.T, dir string) (acked ack) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), work+"="+dir)
	out := need.Got(cmd.StdoutPipe())(t)
	need.OK(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for started := (time.Time{}); lines.Scan(); {
		var a ack
		if n, _ := fmt.Sscanf(lines.Text(), "acknowledged %d %d %d", &a.first, &a.last, &a.term); n != 3 {
			t.Fatal(lines.Text())
		}
		acked = a
		if started.IsZero() {
			started = time.Now()
			time.AfterFunc(time.Duration(time.Now().UnixNano()%int64(150*time.Millisecond)), func() { cmd.Process.Kill() })
		}
	}
	cmd.Wait()
	return acked
}

// workOn appends to a log, deletes from it and converts it, forever. It prints what must be there from then on.
func workOn(dir string) {
	must := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	for {
		d, err := openDisk(dir, "", smallSegments, nil, must)
		must(err)
		first, err := d.FirstIndex()
		must(err)
		last, err := d.LastIndex()
		must(err)
		term, _ := d.GetUint64([]byte(keyTerm))
		for range 12 {
			term++
			must(d.SetUint64([]byte(keyTerm), term))
			fmt.Println("acknowledged", first, last, term)
			must(d.StoreLogs(numbered(last+1, 5, term, 900)))
			first, last = max(first, 1), last+5
			fmt.Println("acknowledged", first, last, term)
			fmt.Println("acknowledged", first, last-2, term)
			must(d.DeleteRange(last-1, last))
			last -= 2
		}
		if to := last - min(last, 60); to >= first {
			fmt.Println("acknowledged", to+1, last, term)
			must(d.DeleteRange(first, to))
		}
		kind := store.LogBolt
		if _, ok := d.log.(*walLog); ok {
			kind = store.LogWAL
		}
		must(d.Close())
		_, err = convert(dir, other(kind), smallSegments)
		must(err)
	}
}

// A node that is started at the end of a conversion must not go on with the file that the conversion has replaced.
func TestLogThatIsReplacedWhileItIsOpenedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, other := writtenLog(t, store.LogBolt), writtenLog(t, store.LogBolt)
		converting := need.Got(openBolt(logPath(dir)))(t)
		opened := make(chan error, 1)
		go func() {
			d, err := openDisk(dir, "", smallSegments, nil, func(error) {})
			if err == nil {
				d.Close()
			}
			opened <- err
		}()
		time.Sleep(time.Second) // it waits for the lock, for 2 s
		need.OK(t, os.Rename(logPath(other), logPath(dir)))
		need.OK(t, converting.Close())
		err := <-opened
		expect.That(t, err != nil && strings.Contains(err.Error(), "was replaced while it was opened"), "got %v, want that the file was replaced", err)
	})
}

func TestWhatAConversionLeavesIsRemoved(t *testing.T) {
	dir := writtenLog(t, store.LogBolt)
	want := need.Got(logOnDisk(dir))(t)
	left := []string{logPath(dir) + ".new", filepath.Join(walDir(dir), "00000000000000000001-0000000000000000.wal")}
	need.OK(t, os.Mkdir(walDir(dir), 0o700))
	for _, path := range left {
		need.OK(t, os.WriteFile(path, []byte("x"), 0o600))
	}
	expect.Equal(t, need.Got(logOnDisk(dir))(t), want, "the log has")
	for _, path := range append(left, walDir(dir)) {
		_, err := os.Stat(path)
		expect.That(t, os.IsNotExist(err), "%s is there: %v", path, err)
	}
}
