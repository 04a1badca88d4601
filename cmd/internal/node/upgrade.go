package node

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/local"
)

// upgrade is the levels of a cluster as own.Upgrade.
type upgrade struct {
	*membership.Members
	policy codec.LevelPolicy
}

// Upgrade implements own.Upgrade.
func (u upgrade) Upgrade(ctx context.Context) api.Upgrade {
	s := u.Members.Upgrade(ctx)
	return upgradeOf(s.Level, s.Nodes, s.Due, u.policy)
}

// localUpgrade is the level of a node without consensus as own.Upgrade.
type localUpgrade struct {
	*local.Store
	policy codec.LevelPolicy
}

// Upgrade implements own.Upgrade.
func (u localUpgrade) Upgrade(context.Context) api.Upgrade {
	nodes, due := u.Store.Upgrade()
	return upgradeOf(u.Levels().Writes, nodes, due, u.policy)
}

func upgradeOf(now byte, nodes []codec.NodeReads, due time.Time, policy codec.LevelPolicy) api.Upgrade {
	shown := api.Upgrade{Level: int(now), Finalize: string(policy.Finalize)}
	for _, n := range nodes {
		shown.Nodes = append(shown.Nodes, api.NodeLevels{
			ID: n.Name, Known: n.Known, Version: n.Version, Oldest: int(n.Oldest), Newest: int(n.Newest), Since: n.Since, Writes: int(n.Writes),
		})
	}
	if now == codec.Newest {
		return shown
	}
	shown.Next, shown.Lacking = int(now)+1, codec.Lacking(nodes, now+1)
	if !due.IsZero() {
		shown.Due = due.UnixMilli()
	}
	for at := now + 1; at <= codec.Newest; at++ {
		shown.Waiting = append(shown.Waiting, api.WaitingFeature{Level: int(at), Version: codec.VersionOf(at), Brings: codec.BroughtBy(at)})
	}
	return shown
}
