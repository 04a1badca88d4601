package node

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestIdleMemoryIsGivenBack(t *testing.T) {
	held, cycles, freed := uint64(500<<20), uint64(1), 0
	now := func() (uint64, uint64) { return held, cycles }
	free := func() { freed, held, cycles = freed+1, 200<<20, cycles+1 }
	var m idleMemory
	for _, step := range []struct {
		name string
		held uint64
		busy uint64
		want int
	}{
		{"it was collected lately", 500 << 20, 1, 0},
		{"idle with much", 500 << 20, 0, 1},
		{"idle with as much as before", 200 << 20, 0, 1},
		{"idle with little more", 260 << 20, 0, 1},
		{"busy with much", 900 << 20, 3, 1},
		{"idle again", 900 << 20, 0, 2},
	} {
		held, cycles = step.held, cycles+step.busy
		m.check(now, free)
		expect.That(t, freed == step.want, "%s: gave memory back %d times so far, want %d", step.name, freed, step.want)
	}
}
