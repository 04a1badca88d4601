package fsm

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// upgrade makes the state one of a newer version, because something of that version is about to be
// applied. What its past left that version 1 cannot say is forgotten first: of the nodes of a cluster
// some have read the same past from a snapshot of version 1, and from here on all must be equal.
func (m *Machine) upgrade(version byte) error {
	f := m.registry.Freeze()
	forget(&f)
	beginVersion2(&f)
	thawed, err := registry.Thaw(f)
	if err != nil {
		return fmt.Errorf("make the state one of version %d: %w", version, err)
	}
	m.registry, m.version = thawed, version
	return nil
}

// forget leaves what a snapshot of version 1 says.
func forget(f *registry.Frozen) {
	for i, s := range f.Leases {
		f.Leases[i].Lease, f.Leases[i].History = leaseOfVersion1(s.Lease), registry.History{}
	}
	for i, r := range f.Removals {
		f.Removals[i].Lease, f.Removals[i].History = leaseOfVersion1(r.Lease), registry.History{}
	}
}

func leaseOfVersion1(l *registry.Lease) *registry.Lease {
	c := *l
	c.BeganLease, c.StartedLease, c.Override = 0, 0, nil
	return &c
}

// beginVersion2 gives a state what version 1 does not say, as if its leases had begun with the clock:
// of the past only their number is known.
func beginVersion2(f *registry.Frozen) {
	f.Settings = registry.DefaultSettings()
	f.Expectation = registry.ExpectationState{
		Clients:    uint32(max(len(f.Leases), 1)),
		Minute:     f.Clock.Lease / 60_000,
		NextUpdate: f.Clock.Lease + f.Settings.ExpectationUpdate,
	}
}
