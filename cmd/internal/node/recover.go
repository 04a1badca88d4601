package node

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/seed-20419f34/rollcall/store/consensus"
)

// Recovered is what Recover has made.
type Recovered = consensus.Recovered

// Recover has a cluster go on with the data directory of one of its nodes, see consensus.Recovery.
func Recover(ctx context.Context, dataDir string, members map[string]string, log *slog.Logger) (Recovered, error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return Recovered{}, err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil { // else Recover says what is missing
		dir = real
	}
	return consensus.Recovery{DataDir: dir, Members: members, Log: log}.Recover(ctx)
}
