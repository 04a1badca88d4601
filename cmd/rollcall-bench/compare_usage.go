package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"
)

// processUsage is what a process has used.
type processUsage struct {
	cpu     time.Duration
	memory  int64 // resident bytes
	written int64 // bytes sent to the disk
}

// plus adds what another process of the same node uses, after this one has ended.
func (u processUsage) plus(later processUsage) processUsage {
	return processUsage{cpu: u.cpu + later.cpu, memory: later.memory, written: u.written + later.written}
}

// bytesBelow adds the sizes of all files below dir. Files that go meanwhile, or dir itself, do not count.
func bytesBelow(dir string) (int64, error) {
	var n int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return unlessGone(err)
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return unlessGone(err)
	})
	return n, err
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
