package node

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestIdleMemoryIsGivenBack(t *testing.T) {
	const mib = 1 << 20
	used := usedMemory{held: 500 * mib, cycles: 1}
	freed, kept := 0, uint64(200*mib)
	free := func() { freed, used.held, used.cycles = freed+1, kept, used.cycles+1 }
	var m idleMemory
	for _, step := range []struct {
		name      string
		held      uint64 // MiB
		allocated uint64 // MiB
		cycles    uint64
		want      int
	}{
		{"it was collected lately", 500, 0, 1, 0},
		{"it allocates, and nothing was collected", 500, 20, 0, 0},
		{"idle with much", 500, 1, 0, 1},
		{"idle with as much as before", 200, 0, 0, 1},
		{"idle with little more", 260, 1, 0, 1},
		{"busy with much", 900, 900, 3, 1},
		{"idle again", 900, 0, 0, 2},
		{"a large registry, at work", 2000, 500, 1, 2},
		{"a large registry", 2000, 0, 0, 3},
		{"a large registry with the garbage of some heartbeats", 1800, 16, 0, 3},
		{"a large registry after a burst", 1900, 16, 0, 4},
	} {
		if step.held == 2000 {
			kept = 1500 * mib
		}
		used.held, used.allocated, used.cycles = step.held*mib, used.allocated+step.allocated*mib, used.cycles+step.cycles
		m.check(func() usedMemory { return used }, free)
		expect.That(t, freed == step.want, "%s: gave memory back %d times so far, want %d", step.name, freed, step.want)
	}
}
