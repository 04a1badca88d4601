package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// setGC lets the heap grow further than Go would: a registry is much live data and little garbage
// per request, so that collections cost more than the memory between them.
func setGC(percent int) {
	if percent > 0 {
		debug.SetGCPercent(percent)
	}
}

// The runtime collects garbage when memory is allocated, and else every two minutes: after a burst of large requests
// an idle node would keep their memory. memoryInterval is the time between two checks, memorySpare how many bytes a
// node may hold more than after the last time it gave memory back.
const (
	memoryInterval = 10 * time.Second
	memorySpare    = 64 << 20
)

// idleMemory gives memory back to the system when no garbage was collected from one check to the next.
type idleMemory struct {
	cycles uint64 // of collection, at the last check
	least  uint64 // bytes held after memory was given back last
}

// run checks until ctx ends.
func (m *idleMemory) run(ctx context.Context) {
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.check(memoryNow, debug.FreeOSMemory)
		case <-ctx.Done():
			return
		}
	}
}

// check gives memory back if the node is idle and holds much more than after the last time.
func (m *idleMemory) check(now func() (held, cycles uint64), free func()) {
	held, cycles := now()
	idle := cycles == m.cycles
	m.cycles = cycles
	if !idle || held <= m.least+memorySpare {
		return
	}
	free()
	m.least, m.cycles = now()
}

// memoryNow is how many bytes the process has of the system, and how often garbage was collected.
func memoryNow() (held, cycles uint64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
	}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64(), samples[2].Value.Uint64()
}
