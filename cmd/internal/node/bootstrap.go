package node

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store/consensus"
)

// bootstrapEvery is the pause between tries to create the first operator, while no node leads.
const bootstrapEvery = time.Second

// bootstrapAuth creates the first operator of a cluster without operators, with the token in a file. Every node may
// have the file, and tries; one of them succeeds, once per cluster.
func (s setup) bootstrapAuth(ctx context.Context, raft *consensus.Raft) {
	path := s.Auth.BootstrapTokenFile
	if path == "" {
		return
	}
	k, err := config.ReadToken(path)
	if err != nil { // though Validate could read it
		s.log.Error("the first operator cannot be created", "auth.bootstrap-token-file", path, "err", err)
		return
	}
	const by = "auth.bootstrap-token-file"
	k.By = by
	op := kv.Access{Change: access.Founding(k)}
	for ctx = access.As(ctx, access.Sender{Name: by}); ctx.Err() == nil; wait.Pause(ctx, nil, bootstrapEvery) {
		// Linearizable: a node that lags does not know what the cluster has.
		if _, err := raft.Coordination().View(ctx, registry.Linearizable); err != nil {
			continue
		}
		if raft.Access().Bootstrapped {
			return
		}
		results, err := raft.Coordination().Apply(ctx, op)
		switch {
		case err != nil:
		case results[0].Refusal != "":
			s.log.Info("the first operator was made already", "why", results[0].Refusal)
			return
		default:
			s.log.Info("the first operator was made", "accessor", k.Accessor, "by", by)
			return
		}
	}
}
