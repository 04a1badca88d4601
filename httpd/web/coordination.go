package web

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// CoordinationClock returns the lease clock (ms) at which a view is read.
func (n *Node) CoordinationClock(v *kv.View) int64 {
	return max(n.Service.Health().Clock, v.Lease())
}

// Coordinate performs one operation on sessions, keys or locks, and fails soon without a leader: our own clients
// then go to another node.
func (n *Node) Coordinate(ctx context.Context, op kv.Op) (kv.Result, error) {
	return n.coordinate(ctx, op, false)
}

// CoordinateAwaitingLeader is like Coordinate, but waits for a leader as long as Consul's clients need.
func (n *Node) CoordinateAwaitingLeader(ctx context.Context, op kv.Op) (kv.Result, error) {
	return n.coordinate(ctx, op, true)
}

// coordinate performs an operation if its sender may, which each try checks again.
func (n *Node) coordinate(ctx context.Context, op kv.Op, awaitLeader bool) (result kv.Result, err error) {
	var deeds []deed
	try := func(ctx context.Context) ([]kv.Result, error) {
		if err := n.mayCoordinate(ctx, op); err != nil {
			return nil, err
		}
		deeds = n.deedsOf(ctx, op)
		return n.Coordination.Apply(ctx, op)
	}
	var results []kv.Result
	if awaitLeader {
		results, err = untilLeader(ctx, try)
	} else {
		results, err = try(ctx)
	}
	switch {
	case err != nil:
		err = WriteError(err)
	case results[0].Revoked:
		err = n.lateDenial(ctx)
	default:
		result = results[0]
	}
	n.recordParts(ctx, deeds, result, err)
	return result, err
}

// mayCoordinate refuses an operation that a context's principal may not send. If the decision depends on the owner of
// a session or service, which this node may not know yet, it catches up first.
func (n *Node) mayCoordinate(ctx context.Context, op kv.Op) error {
	needs := kv.Needs(op, StaleView(n.Service))
	if n.access.asks() && n.restsOnOthers(op, needs) {
		if _, err := n.Coordination.View(ctx, registry.Linearizable); err != nil {
			return err
		}
		needs = kv.Needs(op, StaleView(n.Service))
	}
	return n.allow(ctx, needs...)
}

// restsOnOthers reports whether needs depend on registrations, or on a session that this node does not know.
func (n *Node) restsOnOthers(op kv.Op, needs []access.Need) bool {
	if once, is := op.(kv.Once); is {
		op = once.Op
	}
	if txn, is := op.(kv.Txn); is && slices.ContainsFunc(txn.Ops, func(o kv.TxnOp) bool { return o.Catalog != nil }) {
		return true
	}
	v, err := n.Coordination.View(context.Background(), registry.Stale)
	return err == nil && slices.ContainsFunc(needs, func(need access.Need) bool {
		if need.Resource != access.Session || need.Name == "" {
			return false
		}
		s, _ := v.Session(need.Name)
		return s == nil
	})
}

// Once makes op an operation that is performed only once, if the call has an Idempotency-Key.
func (c *Call) Once(op kv.Op) kv.Op {
	keys := c.R.Header["Idempotency-Key"]
	if len(keys) == 0 {
		return op
	}
	if key := keys[0]; key != "" && len(key) <= kv.MaxOnceKey {
		return kv.Once{Key: key, Op: op}
	}
	c.Refuse("Idempotency-Key must have 1 to %d bytes", kv.MaxOnceKey)
	return op
}

// NewUUID draws a random UUID (RFC 9562, version 4), in lower case.
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// FenceHeader holds the token of the acquisition in force, or 0 without a holder.
const FenceHeader = "X-Rollcall-Fence"

// LabelFence puts the token of an acquisition into a response's header.
func LabelFence(header http.Header, token kv.Index) {
	header.Set(FenceHeader, strconv.FormatUint(uint64(token), 10))
}

// SessionsWeight returns the size of all sessions in a response.
func SessionsWeight(v *kv.View) func() int { return func() int { return 1024 * v.SessionCount() } }
