package consensus

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Coordination is sessions, keys and locks in the same log as the registry. It implements kv.Service.
type Coordination struct{ s *Raft }

// Coordination returns the node's sessions, keys and locks.
func (s *Raft) Coordination() *Coordination { return &Coordination{s} }

// Apply implements kv.Service. Renewals of sessions wait up to gatherFor for company.
func (c *Coordination) Apply(ctx context.Context, ops ...kv.Op) ([]kv.Result, error) {
	items := make([]fsm.Item, len(ops))
	patient := len(ops) > 0
	for i, op := range ops {
		items[i] = fsm.Item{KV: op}
		_, renews := op.(kv.RenewSession)
		patient = patient && renews
	}
	if len(ops) == 1 && patient {
		gone, err := c.ended(ctx, ops[0].(kv.RenewSession).ID)
		if err != nil || gone {
			return make([]kv.Result, 1), err // the result that the state machine gives, too
		}
	}
	results, err := c.s.applyItems(ctx, items, patient)
	if err != nil {
		return nil, fmt.Errorf("apply %d operations of coordination: %w", len(ops), err)
	}
	return results.kv, nil
}

// ended says that there is no session of an id. Renewals of such are answered by a linearizable read: anybody can
// send them without end, so the log does not get them.
func (c *Coordination) ended(ctx context.Context, id string) (bool, error) {
	if s, _ := c.s.machine.KV().Session(id); s != nil {
		return false, nil
	}
	if err := c.s.catchUp(ctx, registry.Linearizable); err != nil {
		return false, fmt.Errorf("renew a session: %w", err)
	}
	s, _ := c.s.machine.KV().Session(id)
	return s == nil, nil
}

// View implements kv.Service. Reads that wait share their rounds with those of the registry.
func (c *Coordination) View(ctx context.Context, read registry.Consistency) (*kv.View, error) {
	if err := c.s.catchUp(ctx, read); err != nil {
		return nil, err
	}
	return c.s.machine.KV(), nil
}

// Watch implements kv.Service.
func (c *Coordination) Watch(t kv.Topic) *kv.Wait { return c.s.keys.Join(t) }

// WatchCatalog begins to wait for a change of an application (upper case; "": of any), of a node or of
// a check, see registry.Watchers.Join.
func (c *Coordination) WatchCatalog(app string) (woken <-chan struct{}, leave func()) {
	return c.s.watchers.Join(app)
}

// RaftAddresses are the node-to-node addresses of the leader, as far as this node knows ("": it knows
// none), and of all voters, sorted.
func (c *Coordination) RaftAddresses() (leader string, all []string) {
	if v := c.s.leader.Load(); v != nil {
		leader = v.address
	}
	members, err := c.s.members()
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

var (
	sessionsDesc = prometheus.NewDesc("rollcall_coordination_sessions", "Sessions in this node's state.", nil, nil)
	bytesDesc    = prometheus.NewDesc("rollcall_coordination_bytes", "What keys, sessions, locks with their queues, records of deleted keys and remembered answers take in this node's state, about; limits.state-bytes bounds it, with the nodes of the catalog.", nil, nil)
	keysDesc     = prometheus.NewDesc("rollcall_coordination_keys", "Keys in this node's state.", nil, nil)
	permitsDesc  = prometheus.NewDesc("rollcall_coordination_permits", "Locks and semaphores, by kind and by what there is of each: themselves, holders and who waits for one.", []string{"kind", "of"}, nil)
	waitingDesc  = prometheus.NewDesc("rollcall_coordination_watchers", "Reads of this node that wait for a change of a key, a session or a lock.", nil, nil)
)

// coordinationGauges shows sessions, keys and locks at the moment of a scrape. It walks locks.
type coordinationGauges struct{ s *Raft }

// Describe implements prometheus.Collector.
func (coordinationGauges) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sessionsDesc, bytesDesc, keysDesc, permitsDesc, waitingDesc} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (g coordinationGauges) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value int, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	v := g.s.machine.KV()
	gauge(sessionsDesc, v.SessionCount())
	gauge(bytesDesc, v.Bytes())
	gauge(keysDesc, v.Len())
	gauge(waitingDesc, g.s.keys.Len())
	for kind, name := range map[kv.Kind]string{kv.Lock: "lock", kv.Semaphore: "semaphore"} {
		all, holders, queue := 0, 0, 0
		for p := range v.AllPermits(kind) {
			all, holders, queue = all+1, holders+len(p.Holders), queue+len(p.Queue)
		}
		gauge(permitsDesc, all, name, "all")
		gauge(permitsDesc, holders, name, "holders")
		gauge(permitsDesc, queue, name, "queue")
	}
}
