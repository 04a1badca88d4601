package consensus

import (
	"fmt"
	"slices"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// maxSkipped bounds the entries that a cluster skips: each is a defect, and all are in every handshake.
const maxSkipped = 100

// SkippedEntry is an entry that a node skips from now on.
type SkippedEntry struct {
	Node       string   `json:"node"`
	Entry      uint64   `json:"entry"`
	Operations []string `json:"operations"` // in the entry, as fsm.Describe names them: they have no effect
	Skipped    []uint64 `json:"skipped"`    // indexes of all entries that the node skips
}

// SkipEntry makes the stopped node of a data directory skip an entry of its log. Nodes of a cluster refuse each other
// until all skip the same entries. SkipEntry refuses, and changes nothing, if the entry is missing, in a snapshot, or
// not a write.
func SkipEntry(dir string, entry uint64) (done SkippedEntry, err error) {
	id, err := disk.ReadIdentity(dir)
	switch {
	case err != nil:
		return done, err
	case id.Mode != disk.ModeCP:
		return done, fmt.Errorf("data directory %s is of mode %s, which has no log: there a node refuses what panics without being told", dir, id.Mode)
	case slices.Contains(id.Skipped, entry):
		return done, fmt.Errorf("node %s skips log entry %d already; it skips %v", id.Node, entry, id.Skipped)
	case len(id.Skipped) >= maxSkipped:
		return done, fmt.Errorf("node %s skips %d log entries, which is the most there can be: recover the cluster from a snapshot", id.Node, maxSkipped)
	}
	operations, err := operationsOf(dir, entry)
	if err != nil {
		return done, err
	}
	id.Skipped = append(id.Skipped, entry)
	slices.Sort(id.Skipped)
	return SkippedEntry{Node: id.Node, Entry: entry, Operations: operations, Skipped: id.Skipped}, id.Save()
}

// operationsOf names the operations of an entry, or returns why the node cannot skip it.
func operationsOf(dir string, index uint64) (operations []string, err error) {
	snapshots, err := raftio.OpenSnapshots(dir, snapshotsKept, hclog.NewNullLogger())
	if err != nil {
		return nil, err
	}
	metas, err := snapshots.List()
	if err != nil {
		return nil, fmt.Errorf("list the snapshots: %w", err)
	}
	if len(metas) > 0 && metas[0].Index >= index {
		return nil, fmt.Errorf("log entry %d is part of the snapshot at entry %d: this node has applied it, and cannot take it back; an entry that a node panics over is in none of its snapshots", index, metas[0].Index)
	}
	var fatal error
	stored, logs, err := raftio.Open(dir, "", func(err error) { fatal = err })
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := stored.Close(); err == nil {
			err = closed
		}
	}()
	last, err := logs.LastIndex()
	switch {
	case err != nil:
		return nil, err
	case index > last:
		return nil, fmt.Errorf("log entry %d is beyond the end of the log, whose last entry is %d: skip it on the nodes that have it, and start them; then, "+disk.StartEmpty, index, last)
	}
	var entry raft.Log
	if err := logs.GetLog(index, &entry); err != nil {
		return nil, fmt.Errorf("read log entry %d: %w", index, err)
	}
	if fatal != nil {
		return nil, fatal
	}
	if entry.Type != raft.LogCommand {
		return nil, fmt.Errorf("log entry %d cannot be skipped: it is one of Raft's own (%v), and no write", index, entry.Type)
	}
	if operations, err = fsm.DescribeWrite(entry.Data); err != nil {
		return nil, fmt.Errorf("log entry %d cannot be skipped, because it is no write: %w", index, err)
	}
	return operations, nil
}
