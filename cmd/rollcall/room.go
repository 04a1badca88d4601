package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
)

// room watches how much the disk of the data directory has left. Where that is less than the settings want,
// the node refuses what its clients want to add, before it must stop: renewals, cancels, deletes and releases
// go on, and so do reads. In mode cp all nodes also go by the leader's disk, which every write reaches.
type room struct {
	dir    string
	least  int64                           // bytes; 0: any will do
	free   func(dir string) (int64, error) // freeBytes, but for tests
	leader func(context.Context) bool      // another node leads, and its disk is nearly full; nil: nobody leads
	log    *slog.Logger

	left      atomic.Int64
	low       atomic.Bool
	leaderLow atomic.Bool

	mu      sync.Mutex // one looks at a time
	failing bool       // the last look failed, and that was logged
}

// roomInterval is the time between two looks.
const roomInterval = time.Second

// run looks until ctx ends.
func (r *room) run(ctx context.Context) {
	tick := time.NewTicker(roomInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.look()
			if r.leader != nil {
				r.leaderLow.Store(r.leader(ctx))
			}
		case <-ctx.Done():
			return
		}
	}
}

// look notes what is left, and says so when the answer of the node to its clients changes by it.
func (r *room) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	left, err := r.free(r.dir)
	if err != nil {
		if !r.failing {
			r.log.Warn("cannot tell how much room the disk has left", "err", err)
		}
		r.failing = true
		return
	}
	r.failing = false
	r.left.Store(left)
	low := left < r.least
	if r.low.Swap(low) == low {
		return
	}
	if low {
		r.log.Warn("the disk is nearly full: additions of clients are refused", "free", left, "data.min-free", r.least)
		return
	}
	r.log.Info("the disk has room again", "free", left)
}

// check refuses what adds something while there is too little room.
func (r *room) check(adds bool) error {
	switch {
	case !adds || !r.low.Load() && !r.leaderLow.Load():
		return nil
	case !r.low.Load():
		return fmt.Errorf("%w: the disk of the leader has less left than its data.min-free wants; what is there can be read, renewed and removed", registry.ErrFull)
	}
	return fmt.Errorf("%w: the disk of this node has %d bytes left, and data.min-free wants %d; what is there can be read, renewed and removed", registry.ErrFull, r.left.Load(), r.least)
}

func (r *room) figures() []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "rollcall", Subsystem: "data", Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		gauge("free_bytes", "Room that the disk of the data directory has left.", func() float64 { return float64(r.left.Load()) }),
		gauge("full", "1 while that is less than data.min-free, and additions are refused.", func() float64 {
			if r.low.Load() {
				return 1
			}
			return 0
		}),
	}
}

// Quota bounds what is kept beside instances.
type Quota struct {
	StateBytes int64 `key:"limits.state-bytes" default:"1073741824" min:"1" help:"most bytes, about, that keys, sessions, locks with their queues, records of deleted keys, remembered answers and nodes of the catalog may take; above it what adds is answered 507, and all else goes on"`
	Sessions   int   `key:"limits.sessions" default:"100000" min:"1" help:"mode cp: most sessions; a new one above it is answered 507"`
	Nodes      int   `key:"limits.nodes" default:"100000" min:"1" help:"most nodes in the catalog; a new one above it is answered 507"`
}

// quota holds a node to it. It looks at this node's copy: what is under way meanwhile may go beyond the limits.
type quota struct {
	limits       *Quota
	service      registry.Service
	coordination httpd.Coordination // nil: there is none
}

// checkBytes refuses what adds where there is too much already.
func (q quota) checkBytes(ctx context.Context) error {
	catalog, err := q.service.View(ctx, registry.Stale)
	if err != nil {
		return err
	}
	bytes := int64(catalog.CatalogBytes())
	if q.coordination != nil {
		keys, err := q.coordination.View(ctx, registry.Stale)
		if err != nil {
			return err
		}
		bytes += int64(keys.Bytes())
	}
	if bytes < q.limits.StateBytes {
		return nil
	}
	return fmt.Errorf("%w: keys, sessions, locks, nodes and remembered answers take %d bytes, and limits.state-bytes is %d; what is there can be read, renewed and removed", registry.ErrFull, bytes, q.limits.StateBytes)
}

// checkCatalog refuses a registration that would add a node where there are too many, or make one larger where too
// much is kept.
func (q quota) checkCatalog(ctx context.Context, op registry.Op) error {
	catalog, ok := op.(registry.RegisterCatalog)
	if !ok {
		return nil
	}
	v, err := q.service.View(ctx, registry.Stale)
	if err != nil {
		return err
	}
	if catalog.Node != nil && v.NodeCount() >= q.limits.Nodes {
		if _, exists := v.Node(catalog.Node.Name); !exists {
			return fmt.Errorf("%w: the catalog has %d nodes, and limits.nodes is %d; those that are there can be registered again and removed", registry.ErrFull, v.NodeCount(), q.limits.Nodes)
		}
	}
	if v.CatalogGrowth(catalog) <= 0 {
		return nil
	}
	return q.checkBytes(ctx)
}

// checkCoordination refuses an operation that adds where there is too much.
func (q quota) checkCoordination(ctx context.Context, op kv.Op) error {
	v, err := q.coordination.View(ctx, registry.Stale)
	if err != nil || !growsCoordination(v, op) {
		return err
	}
	if err := q.checkBytes(ctx); err != nil {
		return err
	}
	if once, ok := op.(kv.Once); ok {
		op = once.Op
	}
	if _, ok := op.(kv.CreateSession); ok && v.SessionCount() >= q.limits.Sessions {
		return fmt.Errorf("%w: there are %d sessions, and limits.sessions is %d; those that are there can be renewed and destroyed", registry.ErrFull, v.SessionCount(), q.limits.Sessions)
	}
	return nil
}

// growsCoordination says whether an operation may add to what is kept: a holder that acquires its lock again, and
// one who keeps a place in the queue, do not.
func growsCoordination(v *kv.View, op kv.Op) bool {
	if acquire, ok := op.(kv.AcquirePermit); ok {
		return !v.Stands(acquire.Kind, acquire.Name, acquire.Session)
	}
	return addsKeys(op)
}

// roomyService is a registry that takes nothing more while the disk is nearly full, and no nodes beyond their
// limits.
type roomyService struct {
	registry.Service
	room  *room
	quota quota
}

// Apply implements registry.Service.
func (s roomyService) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	for _, op := range ops {
		adds := addsToRegistry(origin, op)
		if err := s.room.check(adds); err != nil {
			return nil, err
		}
		if !adds {
			continue
		}
		if err := s.quota.checkCatalog(ctx, op); err != nil {
			return nil, err
		}
	}
	return s.Service.Apply(ctx, origin, ops...)
}

// addsToRegistry says whether a client wants to add something. A server's registrations come with the renewals
// and cancels of others, and would take them along.
func addsToRegistry(origin registry.Origin, op registry.Op) bool {
	if origin.Replicated() {
		return false
	}
	switch op.(type) {
	case registry.Register, registry.UpdateMetadata, registry.RegisterCatalog:
		return true
	}
	return false
}

// roomyCoordination is the same for sessions and keys.
type roomyCoordination struct {
	httpd.Coordination
	room  *room
	quota quota
}

// Apply implements kv.Service.
func (s roomyCoordination) Apply(ctx context.Context, ops ...kv.Op) ([]kv.Result, error) {
	for _, op := range ops {
		if err := s.room.check(addsKeys(op)); err != nil {
			return nil, err
		}
		if err := s.quota.checkCoordination(ctx, op); err != nil {
			return nil, err
		}
	}
	return s.Coordination.Apply(ctx, ops...)
}

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
			if addsKeys(each) {
				return true
			}
		}
	}
	return false
}
