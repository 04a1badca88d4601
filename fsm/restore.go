package fsm

import (
	"fmt"
	"io"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Restore reads a snapshot completely, verifies it, and only then replaces the state in one step.
// Its errors wrap ErrNewerVersion, ErrCorrupt or the reader's error; the state is unchanged then.
func (m *Machine) Restore(r io.Reader) error {
	s, err := readSnapshot(r)
	if err != nil {
		return fmt.Errorf("restore a snapshot: %w", err)
	}
	thawed, coordination, err := thaw(s.registry, s.kv)
	if err != nil {
		return fmt.Errorf("restore a snapshot of entry %d: %w: %w", s.index, ErrCorrupt, err)
	}
	remembered := thawMemory(s.nodes)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.registry, m.kv, m.memory, m.tenure = thawed, coordination, remembered, s.tenure
	m.publish(s.index)
	return nil
}

// thaw builds the two halves of a state; coordination asks the registry for nodes and checks.
func thaw(f registry.Frozen, k kv.Frozen) (*registry.Registry, *kv.State, error) {
	r, err := registry.Thaw(f)
	if err != nil {
		return nil, nil, err
	}
	if newest := max(f.Index, f.Taken); k.Index > newest {
		return nil, nil, fmt.Errorf("coordination is at index %d, beyond the newest, which is %d", k.Index, newest)
	}
	c, err := kv.Thaw(k, catalog{r})
	return r, c, err
}

func thawMemory(nodes []frozenNode) memory {
	m := make(memory, len(nodes))
	for _, n := range nodes {
		thawed := n.nodeMemory
		m[n.name] = &thawed
	}
	return m
}
