package store

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/hashicorp/raft"

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

const (
	// endingBatch bounds the ends of sessions and lock-delays in one entry, and endingLimit those that one
	// step proposes.
	endingBatch = 500
	endingLimit = 10_000
	// hearing is how long after a stall those who could not be heard have to renew.
	hearing = time.Second
)

// coordinationEnv is what a coordinator needs of the store that it works for.
type coordinationEnv struct {
	// clock and confirm are as in evictionEnv.
	clock   func() (now int64, stalls int)
	confirm func(context.Context) bool
	due     func(now int64, limit int) []kv.Op
	apply   func(context.Context, ...kv.Op) ([]kv.Result, error)
	log     *slog.Logger
	metrics *coordinationMetrics
}

// coordinator ends sessions and lock-delays at their time, for one leadership. It looks at every
// reading of the clock, at the top of a heap: a session goes within a tenth of a second of its end. What is
// not committed is looked for again at the next reading, by what the state says then.
//
// All times are the lease clock's.
type coordinator struct {
	coordinationEnv
	believed int   // stalls of the clock up to which this node's knowledge was confirmed
	next     int64 // nothing is ended before
	row      stallRow
	failing  bool // the last proposal was not committed, and that was logged
}

// run ends sessions and lock-delays until ctx ends.
func (c *coordinator) run(ctx context.Context) {
	every(ctx, clockInterval, func(time.Time) { c.step(ctx) })
}

// step ends what is due. A panic costs that step only.
func (c *coordinator) step(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			c.metrics.panics.Inc()
			c.log.Error("ending sessions panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	now, stalls := c.clock()
	c.row.note(now, stalls != c.believed)
	if stalls != c.believed {
		c.catchUp(ctx, now, stalls)
		return
	}
	until := now
	if now < c.next {
		began, long := c.row.long(2 * hearing.Milliseconds())
		if !long {
			return
		}
		until = began
	}
	c.row.over()
	for ops := range slices.Chunk(c.due(until, endingLimit), endingBatch) {
		if !c.propose(ctx, ops) {
			return
		}
	}
}

// catchUp comes back from a stall, as the evictor does.
func (c *coordinator) catchUp(ctx context.Context, now int64, stalls int) {
	if c.confirm(ctx) {
		c.believed, c.next = stalls, now+hearing.Milliseconds()
	}
}

// propose applies what is due. That it could not be applied is said once, until something was.
func (c *coordinator) propose(ctx context.Context, ops []kv.Op) bool {
	results, err := c.apply(ctx, ops...)
	if err != nil && !c.failing && ctx.Err() == nil {
		c.log.Warn("the end of sessions or lock-delays was not committed", "operations", len(ops), "err", err)
	}
	c.failing = err != nil
	expired := 0
	for i, r := range results {
		if _, session := ops[i].(kv.ExpireSession); session && r.Index != 0 {
			expired++
		}
	}
	if expired > 0 {
		c.metrics.expired.Add(float64(expired))
		c.log.Info("sessions expired", "sessions", expired)
	}
	return err == nil
}

// coordinationEnv is what the coordinator of a leadership needs.
func (s *Raft) coordinationEnv() coordinationEnv {
	return coordinationEnv{
		clock:   func() (int64, int) { return s.clock.read(time.Now()) },
		confirm: s.tick,
		due:     s.machine.KVDue,
		apply:   s.Coordination().Apply,
		log:     s.log,
		metrics: s.metrics.coordination,
	}
}
