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
	return consensus.Recovery{DataDir: filepath.Clean(dir), Members: members, Log: log}.Recover(ctx)
}
