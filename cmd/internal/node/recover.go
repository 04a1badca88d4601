package node

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus"
)

// Recover makes a cluster go on with the data directory of one of its nodes, see consensus.Recovery.
func Recover(ctx context.Context, dataDir string, members map[string]string, log *slog.Logger) (consensus.Recovered, error) {
	dir, err := realDir(dataDir)
	if err != nil {
		return consensus.Recovered{}, err
	}
	return consensus.Recovery{DataDir: dir, Members: members, Log: log}.Recover(ctx)
}

// ConvertLog converts the log of a data directory to another kind, see consensus.ConvertLog.
func ConvertLog(dataDir string, to store.RaftLog) (entries uint64, err error) {
	dir, err := realDir(dataDir)
	if err != nil {
		return 0, err
	}
	return consensus.ConvertLog(dir, to)
}

// SkippedEntry is the result of SkipEntry.
type SkippedEntry = consensus.SkippedEntry

// SkipEntry makes a stopped node skip an entry of its log, see consensus.SkipEntry.
func SkipEntry(dataDir string, entry uint64) (SkippedEntry, error) {
	dir, err := realDir(dataDir)
	if err != nil {
		return SkippedEntry{}, err
	}
	return consensus.SkipEntry(dir, entry)
}

// realDir resolves the symbolic links in the path of a directory.
func realDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil { // otherwise the caller says what is missing
		dir = real
	}
	return dir, nil
}
