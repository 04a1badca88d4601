package raftio

import (
	"bufio"
	"errors"
	"fmt"
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
)

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
	entries := need.Got(convert(dir, store.LogWAL, smallSegments))(t)
	expect.Equal(t, entries, uint64(3), "entries")
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

// TestConversionThatFailsLeavesNothing: on a disk that is full the node could not start beside it.
func TestConversionThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	d := diskIn(t, dir, store.LogBolt)
	need.OK(t, d.StoreLogs(numbered(1, 3, 1, 700)))
	need.OK(t, d.StoreLogs(numbered(4, 1, 1, 1<<20)))
	need.OK(t, d.Close())
	defer func(most int) { mostEntry = most }(mostEntry)
	mostEntry = 1 << 20
	_, err := Convert(dir, store.LogWAL)
	expect.That(t, err != nil, "an entry that no segment takes was converted")
	left := need.Got(filepath.Glob(filepath.Join(filepath.Dir(walDir(dir)), "*")))(t)
	expect.That(t, len(left) == 1 && left[0] == logPath(dir), "%v is left, want the log alone", left)
	after := diskIn(t, dir, store.LogBolt)
	defer after.Close()
	expect.Equal(t, need.Got(after.LastIndex())(t), 4, "the last entry:")
}

// work is the environment variable that makes this test a process that works on a log until it is killed.
const work = "ROLLCALL_TEST_WORK_ON_A_LOG"

// TestLogHasWhatWasAcknowledgedAfterKills kills a process that appends, deletes and converts, at any moment.
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

// workOn appends to a log and deletes from it, and converts it, for ever. It prints what must be there from then on.
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

// What a conversion leaves that was cut off is removed.
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
