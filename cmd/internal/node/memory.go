package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// The runtime collects garbage when memory is allocated, and otherwise every two minutes, so an idle node would keep
// the memory of a burst of large requests. Giving it back costs a collection: two seconds of a core for a million
// instances. A busy node collects anyway; an idle one does it only when it holds much more than after the last time.
const (
	memoryInterval = 10 * time.Second // between two checks
	idleGarbage    = 16 << 20         // most bytes that an idle node allocates in that time
	// memorySpare is how many bytes a node may hold above what it held after the last time it gave memory back. If
	// the fraction of that amount is more, it counts instead.
	memorySpare     = 64 << 20
	memorySparePart = 4
)

// usedMemory is the memory use of a process.
type usedMemory struct {
	held      uint64 // bytes that it has from the system
	allocated uint64 // bytes, since it started
	cycles    uint64 // of collection, since it started
}

// idleMemory gives memory back to the system when the node did next to nothing from one check to the next.
type idleMemory struct {
	last  usedMemory
	least uint64 // bytes held after memory was last given back
}

// run checks until ctx ends.
func (m *idleMemory) run(ctx context.Context) {
	wait.Every(ctx, memoryInterval, func(time.Time) { m.check(memoryNow, debug.FreeOSMemory) })
}

// check gives memory back if the node is idle and holds much more than after the last time.
func (m *idleMemory) check(now func() usedMemory, free func()) {
	used := now()
	idle := used.cycles == m.last.cycles && used.allocated-m.last.allocated <= idleGarbage
	m.last = used
	if !idle || used.held <= m.least+max(memorySpare, m.least/memorySparePart) {
		return
	}
	free()
	m.last = now()
	m.least = m.last.held
}

func memoryNow() usedMemory {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
	}
	metrics.Read(samples)
	return usedMemory{
		held:      samples[0].Value.Uint64() - samples[1].Value.Uint64(),
		allocated: samples[2].Value.Uint64(), cycles: samples[3].Value.Uint64(),
	}
}
