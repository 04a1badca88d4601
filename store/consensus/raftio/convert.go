package raftio

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/seed-20419f34/rollcall/store"
)

// Convert turns the log below the data directory of a stopped node into one of another kind, with the same entries,
// term and vote, and returns the number of entries. Until its last step, the rename of log.db, the log is unchanged.
// The next start removes what an interrupted conversion left behind.
func Convert(dir string, to store.RaftLog) (entries uint64, err error) {
	return convert(dir, to, segmentSize)
}

func convert(dir string, to store.RaftLog, segmentSize uint32) (entries uint64, err error) {
	if _, err := os.Stat(logPath(dir)); err != nil {
		return 0, fmt.Errorf("open log: %w", err)
	}
	var failed error
	from, err := openDisk(dir, "", segmentSize, nil, func(err error) { failed = errors.Join(failed, err) })
	if err != nil {
		return 0, err
	}
	closing := sync.OnceValue(from.Close)
	fill := func(bolt *raftboltdb.BoltStore) error {
		entries, err = copyLog(dir, to, segmentSize, from, bolt)
		return err
	}
	there, renaming := store.LogBolt, false
	if _, elsewhere := from.conf[keyWAL]; elsewhere {
		there = store.LogWAL
	}
	err = fmt.Errorf("data directory %s has its log in %q already", dir, to)
	if there != to {
		err = replaceLog(dir, fill, func() {
			renaming = true
			if runtime.GOOS == "windows" { // Windows does not rename over an open file
				closing()
			}
		})
	}
	switch { // the next start removes what stays behind and is not needed
	case err == nil:
		_ = removeUnused(dir, to)
	case !renaming: // on a full disk there would be no next start
		_ = removeUnused(dir, there)
	}
	if err = errors.Join(err, closing(), failed); err != nil {
		return 0, fmt.Errorf("convert the log: %w", err)
	}
	return entries, nil
}

// copyLog fills a new log.db with the contents of another log.
func copyLog(dir string, to store.RaftLog, segmentSize uint32, from *Disk, bolt *raftboltdb.BoltStore) (entries uint64, err error) {
	for key, sealed := range from.conf {
		if key != keyWAL {
			err = errors.Join(err, bolt.Set([]byte(key), sealed))
		}
	}
	var log entryLog = boltLog{bolt}
	if err == nil && to == store.LogWAL {
		log, err = openWAL(dir, bolt, walList{}, segmentSize, nil)
	}
	if err != nil {
		return 0, err
	}
	entries, err = copyEntries(from, log)
	return entries, errors.Join(err, log.Close())
}

// copyEntries copies all entries unchanged.
func copyEntries(from *Disk, to entryLog) (entries uint64, err error) {
	first, err := from.FirstIndex()
	if err != nil || first == 0 {
		return 0, err
	}
	last, err := from.LastIndex()
	var logs []*raft.Log
	bytes := 0
	for index := first; err == nil && index <= last; index++ {
		log := new(raft.Log)
		if err = from.GetLog(index, log); errors.Is(err, raft.ErrLogNotFound) {
			// a gap in raft-boltdb: a snapshot has replaced what is before it
			entries, logs, bytes, err = 0, nil, 0, nil
			continue
		}
		logs, bytes = append(logs, log), bytes+len(log.Data)
		if err == nil && (bytes >= appendBytes || index == last) {
			entries += uint64(len(logs))
			err, logs, bytes = to.StoreLogs(logs), nil, 0
		}
	}
	return entries, err
}
