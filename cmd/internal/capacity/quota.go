package capacity

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
)

// Quota bounds what is kept beside instances.
type Quota struct {
	StateBytes int64 `key:"limits.state-bytes" default:"1073741824" min:"1" help:"most bytes, about, that keys, sessions, locks with their queues, records of deleted keys, remembered results and nodes of the catalog may take; above it what adds gets 507, and all else goes on"`
	Sessions   int   `key:"limits.sessions" default:"100000" min:"1" help:"mode cp: most sessions; a new one above it gets 507"`
	Nodes      int   `key:"limits.nodes" default:"100000" min:"1" help:"most nodes in the catalog; a new one above it gets 507"`
}

// quota holds a node to the limits. It reads a copy of the state: operations that are under way meanwhile may go beyond
// them.
type quota struct {
	limits       *atomic.Pointer[Quota]
	service      registry.Service
	coordination httpd.Coordination // nil: there is none
}

// sure makes a check by this node's copy of the state. If that refuses, it may lack what is there already: then the newest
// state decides, which costs a round trip in this case alone.
func sure(check func(registry.Consistency) error) error {
	err := check(registry.Stale)
	if errors.Is(err, registry.ErrFull) {
		if newest := check(registry.Linearizable); !errors.Is(newest, registry.ErrNotOffered) {
			return newest
		}
	}
	return err
}

// checkBytes refuses an operation that adds when keys, sessions, locks and nodes take too many bytes already.
func (q quota) checkBytes(ctx context.Context, read registry.Consistency) error {
	catalog, err := q.service.View(ctx, read)
	if err != nil {
		return err
	}
	bytes := int64(catalog.CatalogBytes())
	if q.coordination != nil {
		keys, err := q.coordination.View(ctx, read)
		if err != nil {
			return err
		}
		bytes += int64(keys.Bytes())
	}
	limits := q.limits.Load()
	if bytes < limits.StateBytes {
		return nil
	}
	return fmt.Errorf("%w: keys, sessions, locks, nodes and remembered results take %d bytes, and limits.state-bytes is %d; what is there can be read, renewed and removed", registry.ErrFull, bytes, limits.StateBytes)
}

// checkCatalog refuses a registration that would add a node beyond their limit, or make one larger beyond the limit of
// bytes.
func (q quota) checkCatalog(ctx context.Context, op registry.Op, read registry.Consistency) error {
	catalog, ok := op.(registry.RegisterCatalog)
	if !ok {
		return nil
	}
	v, err := q.service.View(ctx, read)
	if err != nil {
		return err
	}
	if limits := q.limits.Load(); catalog.Node != nil && v.NodeCount() >= limits.Nodes {
		if _, exists := v.Node(catalog.Node.Name); !exists {
			return fmt.Errorf("%w: the catalog has %d nodes, and limits.nodes is %d; those that are there can be registered again and removed", registry.ErrFull, v.NodeCount(), limits.Nodes)
		}
	}
	if v.CatalogGrowth(catalog) <= 0 {
		return nil
	}
	return q.checkBytes(ctx, read)
}

// checkCoordination refuses an operation that adds beyond the limits of bytes, of sessions or of nodes.
func (q quota) checkCoordination(ctx context.Context, op kv.Op, read registry.Consistency) error {
	for _, given := range registrations(op) {
		if err := q.checkCatalog(ctx, given, read); err != nil {
			return err
		}
	}
	v, err := q.coordination.View(ctx, read)
	if err != nil || !growsCoordination(v, op) {
		return err
	}
	if err := q.checkBytes(ctx, read); err != nil {
		return err
	}
	if once, ok := op.(kv.Once); ok {
		op = once.Op
	}
	limits := q.limits.Load()
	if _, ok := op.(kv.CreateSession); ok && v.SessionCount() >= limits.Sessions {
		return fmt.Errorf("%w: there are %d sessions, and limits.sessions is %d; those that are there can be renewed and destroyed", registry.ErrFull, v.SessionCount(), limits.Sessions)
	}
	return nil
}

// growsCoordination says whether an operation may add to what is kept. A session that acquires again what it holds or
// waits for adds nothing.
func growsCoordination(v *kv.View, op kv.Op) bool {
	if acquire, ok := op.(kv.AcquirePermit); ok {
		return !v.HoldsOrWaits(acquire.Kind, acquire.Name, acquire.Session)
	}
	return addsKeys(op)
}

// addsKeys says whether an operation creates a session, or writes or acquires a key.
func addsKeys(op kv.Op) bool {
	switch op := op.(type) {
	case kv.Once:
		return addsKeys(op.Op)
	case kv.CreateSession:
		return true
	case kv.KeyOp:
		return op.Verb == kv.Set || op.Verb == kv.CAS || op.Verb == kv.Acquire
	case kv.Txn:
		for _, each := range op.Ops {
			if each.Key != nil && addsKeys(*each.Key) {
				return true
			}
		}
	}
	return false
}

// registrations are those of nodes, services and checks in a transaction.
func registrations(op kv.Op) (all []registry.RegisterCatalog) {
	if once, ok := op.(kv.Once); ok {
		op = once.Op
	}
	txn, _ := op.(kv.Txn)
	for _, each := range txn.Ops {
		if each.Catalog != nil && each.Catalog.Register != nil {
			all = append(all, *each.Catalog.Register)
		}
	}
	return all
}
