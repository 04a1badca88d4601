package kv

import (
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// rig is a state and the machine around it: the indexes that operations take, and the time.
type rig struct {
	*State
	t     testing.TB
	nodes checks
	next  Index
	now   int64 // lease clock, ms
}

// checks is a catalog. It tells which checks are critical, by node and id; the check "" stands for its node.
type checks map[CheckRef]bool

func (c checks) HasNode(node string) bool {
	_, known := c[CheckRef{Node: node}]
	return known
}

func (c checks) CheckState(node, id string) (status catalog.CheckStatus, known bool) {
	critical, known := c[CheckRef{Node: node, ID: id}]
	if critical {
		status = catalog.Critical
	}
	return status, known
}

const serfHealth = catalog.SerfHealth

// Nothing here changes nodes, services and checks.
func (c checks) Next() Index            { return 1 }
func (c checks) Attempt(do func() bool) { do() }

func (c checks) Raise(beyond Index, _ int64) Index { return beyond + registry.Incarnation }

func (c checks) Readmit(registry.Image, registry.Act) (int, []CheckRef) { return 0, nil }

func (c checks) PerformInTxn(registry.CatalogOp) registry.CatalogResult {
	return registry.CatalogResult{}
}
func (c checks) Lost() []CheckRef { return nil }

// KeyTxn returns a transaction of operations on keys.
func KeyTxn(ops []KeyOp) Txn {
	txn := Txn{Ops: make([]TxnOp, len(ops))}
	for i := range ops {
		txn.Ops[i].Key = &ops[i]
	}
	return txn
}

const (
	startOfWall = 1_700_000_000_000

	s1 = "00000000-0000-0000-0000-00000000000a" // with letters: case does not matter
	s2 = "00000000-0000-0000-0000-00000000000b"
	s3 = "00000000-0000-0000-0000-00000000000c"
)

var epoch1 = Epoch{Term: 1, Index: 1}

func newRig(t testing.TB) *rig {
	nodes := checks{{}: false, {ID: serfHealth}: false}
	r := &rig{State: New(nodes), t: t, nodes: nodes, next: 100, now: 1000}
	r.Establish(epoch1, r.now)
	r.pass(100_000) // grace is over
	return r
}

func (r *rig) pass(ms int64) { r.now += ms }

func (r *rig) at() At {
	return At{Index: r.next, Lease: r.now, Wall: startOfWall + r.now, Term: r.epoch.Term}
}

// do performs an operation. A result's Index must be the operation's, and the view must have it.
func (r *rig) do(op Op) Result {
	r.t.Helper()
	before := r.View().Index()
	res := r.Apply(r.at(), op)
	after := r.View().Index()
	if changed := after != before; res.Index != 0 != changed || changed && (res.Index != r.next || after != r.next) {
		r.t.Fatalf("%+v at index %d: index %d, and the view's went from %d to %d", op, r.next, res.Index, before, after)
	}
	if res.Index != 0 {
		r.next++
	}
	return res
}

// yes performs an operation that must succeed.
func (r *rig) yes(op Op) Result {
	r.t.Helper()
	res := r.do(op)
	if !res.OK || res.Refusal != "" {
		r.t.Fatalf("%+v: %+v, want it done", op, res)
	}
	return res
}

// no performs an operation that must fail, and change nothing.
func (r *rig) no(op Op) Result {
	r.t.Helper()
	res := r.do(op)
	if res.OK || res.Refusal != "" || res.Index != 0 {
		r.t.Fatalf("%+v: %+v, want false and no change", op, res)
	}
	return res
}

// refused performs an operation that must be refused in these words.
func (r *rig) refused(op Op, words string) {
	r.t.Helper()
	res := r.do(op)
	if res.OK || res.Refusal != words || res.Index != 0 {
		r.t.Fatalf("%+v: %+v, want it refused: %s", op, res, words)
	}
}

func (r *rig) session(id string, change ...func(*CreateSession)) *Session {
	r.t.Helper()
	op := CreateSession{ID: id, NodeChecks: []string{serfHealth}}
	for _, c := range change {
		c(&op)
	}
	return r.yes(op).Session
}

func ttl(ms int64) func(*CreateSession) { return func(c *CreateSession) { c.TTL = ms } }

// lockDelay gives a session a lock-delay in ms.
func lockDelay(ms int64) func(*CreateSession) {
	return func(c *CreateSession) { c.LockDelay = ms * 1_000_000 }
}

func deleteKeys(c *CreateSession) { c.Behavior = DeleteKeys }

func set(key, value string) KeyOp { return KeyOp{Verb: Set, Key: key, Value: []byte(value)} }

func acquire(key, session string) KeyOp {
	return KeyOp{Verb: Acquire, Key: key, Value: []byte("held"), Session: session}
}

func del(key string) KeyOp { return KeyOp{Verb: Delete, Key: key} }

// pair returns a key's pair, which must exist.
func (r *rig) pair(key string) *Pair {
	r.t.Helper()
	e, index := r.View().Get(key)
	if e == nil {
		r.t.Fatalf("key %q is not there", key)
	}
	if index != e.ModifyIndex {
		r.t.Errorf("key %q has index %d and ModifyIndex %d, want the same", key, index, e.ModifyIndex)
	}
	return e
}
