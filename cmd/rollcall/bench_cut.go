package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// mib is the unit of memory.
const mib = 1 << 20

// cutLink cuts the link under a load of changes, and measures what the leader keeps for the peer, and how
// long it takes after the cut to tell all of it. The load goes on meanwhile.
func (r *ratiosRun) cutLink(ctx context.Context, p *benchPair, f benchFleet) error {
	err := r.steady(ctx, healing, p.here, func(leader string) (keep func(), err error) {
		l := httpLoad{targets: p.here.addrs(), requests: f.changes(), want: http.StatusNoContent}
		return keep, r.beside(ctx, healing, l, changeRate, func(ctx context.Context) error {
			keep, err = r.cutAndHeal(ctx, p, leader)
			return err
		})
	})
	if err != nil {
		return err
	}
	if err := p.awaitEqual(ctx); err != nil {
		return fmt.Errorf("after the cut: %w", err)
	}
	return nil
}

func (r *ratiosRun) cutAndHeal(ctx context.Context, p *benchPair, leader string) (keep func(), err error) {
	if !pauseBench(ctx, 2*r.window) {
		return nil, ctx.Err()
	}
	before, err := p.memory(ctx, leader)
	if err != nil {
		return nil, err
	}
	r.say("cutting the link for %v", r.cut)
	p.cut()
	defer p.heal()
	if !pauseBench(ctx, r.cut) {
		return nil, ctx.Err()
	}
	after, err := p.memory(ctx, leader)
	if err != nil {
		return nil, err
	}
	took, err := p.timeHealing(ctx)
	return func() {
		r.record(healing, "s", took.Seconds())
		r.record(cutResident, "MiB", (after.resident-before.resident)/mib)
		r.record(cutHeap, "MiB", (after.heap-before.heap)/mib)
	}, err
}

// timeHealing heals the link and returns how long it takes until the other datacenter knows what
// happened before.
func (p *benchPair) timeHealing(ctx context.Context) (time.Duration, error) {
	index, err := p.index(ctx)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	p.heal()
	err = p.awaitTold(ctx, index)
	return time.Since(begin), err
}

// nodeMemory is bytes of a node's process.
type nodeMemory struct{ resident, heap float64 }

// memory asks a node of the first datacenter.
func (p *benchPair) memory(ctx context.Context, node string) (m nodeMemory, err error) {
	if m.resident, err = nodeMetric(ctx, node, "process_resident_memory_bytes"); err != nil {
		return m, err
	}
	at := slices.Index(p.here.addrs(), node)
	m.heap, err = liveHeap(ctx, node, p.here.profilers[at])
	return m, err
}
