package node

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// limitAdditions wraps a node's services. They refuse additions while the disk is nearly full or a limit is reached,
// and new things with invisible characters in their names. Renewals, cancels, deletes, releases and reads go on. The
// limits may change at any time. If coordination is nil, so is the returned one.
func limitAdditions(
	disk *diskMeter, limits *atomic.Pointer[config.Quota], service registry.Service, coordination consul.Coordination, metrics prometheus.Registerer,
) (registry.Service, consul.Coordination) {
	q := quota{limits, service, coordination, newFigures(metrics)}
	if coordination != nil {
		coordination = limitedCoordination{coordination, disk, q}
	}
	return limitedService{service, disk, q}, coordination
}

// limitedService is a registry that accepts no additions while the disk is nearly full, and no nodes of the catalog
// beyond their limits.
type limitedService struct {
	registry.Service
	disk  *diskMeter
	quota quota
}

// Apply implements registry.Service.
func (s limitedService) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	for _, op := range ops {
		adds := addsToRegistry(origin, op)
		if err := s.disk.check(adds); err != nil {
			return nil, err
		}
		if !adds {
			continue
		}
		if err := s.quota.sure(func(read registry.Consistency) error { return s.quota.checkRegistry(ctx, op, read) }); err != nil {
			return nil, err
		}
	}
	return s.Service.Apply(ctx, origin, ops...)
}

// addsToRegistry reports whether a client wants to add something. A server's registrations do not count: they share a
// batch with renewals and cancels, which would be refused with them.
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

// limitedCoordination is the same for sessions, keys and locks.
type limitedCoordination struct {
	consul.Coordination
	disk  *diskMeter
	quota quota
}

// Apply implements kv.Service.
func (s limitedCoordination) Apply(ctx context.Context, ops ...kv.Op) ([]kv.Result, error) {
	for _, op := range ops {
		if once, ok := op.(kv.Once); ok {
			op = once.Op
		}
		if err := s.disk.check(addsKeys(op) || len(registrations(op)) > 0); err != nil {
			return nil, err
		}
		if err := s.quota.sure(func(read registry.Consistency) error { return s.quota.checkCoordination(ctx, op, read) }); err != nil {
			return nil, err
		}
	}
	return s.Coordination.Apply(ctx, ops...)
}
