package consensus

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Coordination provides sessions, keys and locks over the same log as the registry. It implements kv.Service.
type Coordination struct{ s *Raft }

// Coordination returns the node's sessions, keys and locks.
func (s *Raft) Coordination() *Coordination { return &Coordination{s} }

// Apply implements kv.Service. Renewals of sessions wait up to gatherFor for others.
func (c *Coordination) Apply(ctx context.Context, ops ...kv.Op) ([]kv.Result, error) {
	items := make([]fsm.Item, len(ops))
	patient := len(ops) > 0
	by := access.SenderOf(ctx)
	for i, op := range ops {
		items[i] = fsm.Item{KV: op}
		_, renews := op.(kv.RenewSession)
		if !renews {
			items[i].By = by
		}
		patient = patient && renews
	}
	if len(ops) == 1 && patient {
		unknown, err := c.unknown(ctx, ops[0].(kv.RenewSession).ID)
		if err != nil || unknown {
			return make([]kv.Result, 1), err // the state machine gives the same result
		}
	}
	results, err := c.s.committer.Commit(ctx, items, paceOf(patient))
	if err != nil {
		return nil, fmt.Errorf("apply %d operations of coordination: %w", len(ops), err)
	}
	return results.KV, nil
}

// unknown reports whether no session has an id. A linearizable read decides it for renewals: any client can send
// unknown ids endlessly, so they stay out of the log.
func (c *Coordination) unknown(ctx context.Context, id string) (bool, error) {
	if s, _ := c.s.machine.KV().Session(id); s != nil {
		return false, nil
	}
	if err := c.s.reader.CatchUp(ctx, registry.Linearizable); err != nil {
		return false, fmt.Errorf("renew a session: %w", err)
	}
	s, _ := c.s.machine.KV().Session(id)
	return s == nil, nil
}

// View implements kv.Service. Waiting reads share their rounds with those of the registry.
func (c *Coordination) View(ctx context.Context, read registry.Consistency) (*kv.View, error) {
	if err := c.s.reader.CatchUp(ctx, read); err != nil {
		return nil, err
	}
	return c.s.machine.KV(), nil
}

// Access returns who may do what in the cluster, according to this node's state.
func (s *Raft) Access() *access.Table { return s.machine.KV().Access() }

// ClusterID returns the cluster's id, or "" before the node is in one.
func (s *Raft) ClusterID() string { return s.identity.Cluster() }

// Watch implements kv.Service.
func (c *Coordination) Watch(t kv.Topic) *kv.Wait { return c.s.keys.Join(t) }

// WatchCatalog starts to wait for a change of a topic, see registry.Watchers.Join.
func (c *Coordination) WatchCatalog(t registry.Topic) (woken <-chan struct{}, leave func()) {
	return c.s.watchers.Join(t)
}

// RaftAddresses returns the node-to-node addresses of the leader, or "" if this node knows none, and of all voters,
// sorted.
func (c *Coordination) RaftAddresses() (leader string, all []string) {
	if v := c.s.leadership.Leader(); v != nil {
		leader = v.Address
	}
	members, err := c.s.members.All()
	if err != nil {
		return leader, nil // shutting down
	}
	for _, m := range members {
		if m.Suffrage == raft.Voter {
			all = append(all, string(m.Address))
		}
	}
	slices.Sort(all)
	return leader, all
}
