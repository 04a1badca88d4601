package raftio

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/store/disktest"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// writtenLog writes a log of several levels of pages, or of several segments, with a vote, of which some was deleted
// and written anew.
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

// logOnDisk is everything that Raft reads of a log.
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
			disktest.EachDamage(t, dir, file, func(t *testing.T, dir, how string) {
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
			expect.That(t, refused >= disktest.Damages/4, "%s: %d of %d damages were refused, want most of those that hit something", file, refused, disktest.Damages)
			need.OK(t, os.WriteFile(filepath.Join(dir, file), whole, 0o600))
		}
	})
}

// segmentsIn are the files of entries below a data directory, oldest first.
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
		err := d.StoreLog(&damaged)
		expect.That(t, err != nil, "%s: it was stored", name)
	}
	expect.OK(t, d.StoreLog(entry))
	if last, err := d.LastIndex(); err != nil || last != 5 {
		t.Errorf("last index %d, %v, want 5", last, err)
	}
}
