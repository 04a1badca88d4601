package raftio

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// TestSnapshotHasItsFilesAfterALossOfPower on a file system that keeps of a directory what was there when it was synced last.
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

// TestSnapshotThatIsNotDurableIsNone: the sync of its directory fails.
func TestSnapshotThatIsNotDurableIsNone(t *testing.T) {
	dir := t.TempDir()
	need.OK(t, os.Mkdir(filepath.Join(dir, disk.RaftDir), 0o700))
	opened := need.Got(OpenSnapshots(dir, 2, hclog.NewNullLogger()))(t).(snapshots)
	broken := errors.New("the disk is broken")
	opened.sync = func(string) error { return broken }
	_, err := opened.Create(1, 1, 1, raft.Configuration{}, 1, nil)
	expect.ErrorIs(t, err, broken, "the snapshot was begun")
	left := need.Got(os.ReadDir(filepath.Join(dir, disk.RaftDir, "snapshots")))(t)
	expect.Equal(t, len(left), 0, "what is left")
}
