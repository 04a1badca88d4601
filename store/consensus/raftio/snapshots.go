package raftio

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/store/disk"
)

// unfinished returns the directory of a snapshot that is not finished.
func unfinished(dir, id string) string {
	return filepath.Join(dir, disk.RaftDir, "snapshots", id+".tmp")
}

// snapshots makes each snapshot's own directory durable. Raft syncs only the files and the directory above.
type snapshots struct {
	*raft.FileSnapshotStore
	dir  string                  // the data directory
	sync func(path string) error // makes the names in a directory durable
}

// OpenSnapshots opens the snapshots below a data directory, and keeps the newest ones. A crash leaves a new one whole
// or not at all.
func OpenSnapshots(dir string, kept int, log hclog.Logger) (raft.SnapshotStore, error) {
	raftDir := filepath.Join(dir, disk.RaftDir)
	store, err := raft.NewFileSnapshotStoreWithLogger(raftDir, kept, log)
	if err == nil {
		err = disk.SyncDir(raftDir)
	}
	if err != nil {
		return nil, fmt.Errorf("open snapshots in %s: %w", raftDir, err)
	}
	return snapshots{store, dir, disk.SyncDir}, nil
}

// Create implements raft.SnapshotStore. The files have their names from the beginning, so they can be made durable
// before the rename that turns them into a snapshot.
func (s snapshots) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.FileSnapshotStore.Create(version, index, term, members, membersIndex, t)
	if err != nil {
		return nil, err
	}
	if err := s.sync(unfinished(s.dir, sink.ID())); err != nil {
		return nil, errors.Join(err, sink.Cancel())
	}
	return sink, nil
}

// RemoveUnfinishedSnapshot deletes what was written of a snapshot that will not be finished.
func RemoveUnfinishedSnapshot(dir, id string) error { return os.RemoveAll(unfinished(dir, id)) }

// RemoveUnfinishedSnapshots deletes what failed snapshots leave behind: the file store keeps such directories, and on
// a full disk they keep it full.
func RemoveUnfinishedSnapshots(dir string) error {
	left, err := filepath.Glob(unfinished(dir, "*"))
	if err != nil {
		return fmt.Errorf("list unfinished snapshots: %w", err)
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove unfinished snapshot: %w", err)
		}
	}
	return nil
}

// ExplainLoad says which of the files that Raft starts from cannot be used, and what an operator can do; raft itself
// says that on earlier lines. unread names the snapshot that could not be read, and says why.
func ExplainLoad(dir string, unread, err error) error {
	snapshots := filepath.Join(dir, "snapshots")
	if unread != nil && cannotRead(unread) {
		return fmt.Errorf("read the snapshot %s (%w)", filepath.Join(snapshots, unread.Error()), err)
	}
	if unread != nil {
		return fmt.Errorf("the snapshot %s is damaged (%w; %w): %s", filepath.Join(snapshots, unread.Error()), disk.ErrDamaged, err, disk.StartEmpty)
	}
	metas, _ := filepath.Glob(filepath.Join(snapshots, "*"))
	for _, path := range metas {
		meta := filepath.Join(path, "meta.json")
		b, readErr := os.ReadFile(meta)
		if cannotRead(readErr) {
			return fmt.Errorf("%w (%w)", readErr, err)
		}
		if readErr == nil && !json.Valid(b) {
			readErr = errors.New("it is not JSON")
		}
		if readErr != nil {
			return fmt.Errorf("the snapshot %s is damaged (%w: %w; %w): %s", meta, disk.ErrDamaged, readErr, err, disk.StartEmpty)
		}
	}
	return fmt.Errorf("load %s: %w (if snapshots were removed there: %s)", dir, err, disk.StartEmpty)
}

// cannotRead reports whether the operating system did not let a file be read, which says nothing about its contents.
// A missing file counts as damage.
func cannotRead(err error) bool { return disk.IsOfSystem(err) && !errors.Is(err, fs.ErrNotExist) }
