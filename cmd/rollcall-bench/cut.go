package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mib is the unit of memory.
const mib = 1 << 20

// cutLink cuts the link under a load of changes, and measures what the leader keeps for the peer, and how
// long it takes after the cut to tell all of it. The load goes on meanwhile. Every instance has changed
// once before: what an instance takes more after its first change is no peer's.
func (r *ratiosRun) cutLink(ctx context.Context, p *benchPair, f benchFleet) error {
	l := httpLoad{targets: p.here.addrs(), conns: changeConns, requests: f.changes(), want: http.StatusNoContent}
	if err := r.changeAll(ctx, l, f.size); err != nil {
		return err
	}
	if err := p.awaitEqual(ctx); err != nil {
		return err
	}
	err := r.steady(ctx, healing, p.here, func(leader string) (keep func(), err error) {
		err = r.beside(ctx, healing, l, changeRate, func(ctx context.Context) error {
			keep, err = r.cutAndHeal(ctx, p, leader)
			return err
		})
		return keep, err
	})
	if err != nil {
		return err
	}
	if err := p.awaitEqual(ctx); err != nil {
		return fmt.Errorf("after the cut: %w", err)
	}
	return nil
}

// changeAll sends so many changes of a load as fast as it can.
func (r *ratiosRun) changeAll(ctx context.Context, l httpLoad, n int) error {
	r.say("changing %d instances", n)
	l.conns, l.requests = min(256, n), inAll(n, l.requests)
	result, err := l.closed(ctx)
	if err != nil {
		return err
	}
	r.wronged(healing, result.wrong)
	return nil
}

// inAll is a workload that ends after n requests.
func inAll(n int, w workload) workload {
	return func(conn, conns int) func() []byte {
		next, sent := w(conn, conns), conn
		return func() []byte {
			if sent >= n {
				return nil
			}
			sent += conns
			return next()
		}
	}
}

func (r *ratiosRun) cutAndHeal(ctx context.Context, p *benchPair, leader string) (keep func(), err error) {
	if !pauseBench(ctx, r.window) {
		return nil, ctx.Err()
	}
	before, err := r.memory(ctx, p, leader)
	if err != nil {
		return nil, err
	}
	r.say("cutting the link for %v", r.cut)
	p.links.Cut()
	defer p.links.Heal()
	if !pauseBench(ctx, r.cut) {
		return nil, ctx.Err()
	}
	after, err := r.memory(ctx, p, leader)
	if err != nil {
		return nil, err
	}
	took, err := p.timeHealing(ctx)
	return func() {
		r.record(healing, "s", took.Seconds())
		r.record(cutResident, "MiB", (after.resident-before.resident)/mib)
		r.record(cutHeap, "MiB", (after.heap-before.heap)/mib)
		r.record(cutGoal, "MiB", (after.goal-before.goal)/mib)
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
	p.links.Heal()
	err = p.awaitTold(ctx, index)
	return time.Since(begin), err
}

// nodeMemory is bytes of a node's process.
type nodeMemory struct {
	resident float64 // without mapped files
	heap     float64 // that survives a collection
	goal     float64 // to which the heap grows before the next one
}

// memory asks a node of the first datacenter a few times and keeps the least: for some seconds a snapshot
// holds the state of its beginning.
func (r *ratiosRun) memory(ctx context.Context, p *benchPair, node string) (least nodeMemory, err error) {
	const times = 4
	for i := range times {
		m, err := p.memoryNow(ctx, node)
		if err != nil {
			return least, err
		}
		if i == 0 {
			least = m
		}
		least = nodeMemory{min(least.resident, m.resident), min(least.heap, m.heap), min(least.goal, m.goal)}
		if i < times-1 && !pauseBench(ctx, r.window/2) {
			return least, ctx.Err()
		}
	}
	return least, nil
}

func (p *benchPair) memoryNow(ctx context.Context, node string) (m nodeMemory, err error) {
	at := slices.Index(p.here.addrs(), node)
	if m.resident, err = p.here.resident(ctx, at); err != nil {
		return m, err
	}
	if m.heap, err = liveHeap(ctx, node, p.here.profilers[at]); err != nil {
		return m, err
	}
	m.goal, err = nodeMetric(ctx, node, "go_memstats_next_gc_bytes")
	return m, err
}

// resident is a node's resident memory without the files that are mapped into it: with every entry some
// more of the Raft log is. Where the system does not tell them apart, it is all of it.
func (c *benchCluster) resident(ctx context.Context, node int) (float64, error) {
	text := procField(fmt.Sprintf("/proc/%d/status", c.nodes[node].Pid()), "RssAnon")
	if kb, err := strconv.ParseFloat(strings.TrimSuffix(text, " kB"), 64); err == nil {
		return kb * 1024, nil
	}
	return nodeMetric(ctx, c.nodes[node].HTTP, "process_resident_memory_bytes")
}
