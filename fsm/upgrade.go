package fsm

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// upgrade makes the state one of a newer version, because something of that version is about to be
// applied. What its past left that the state's present version cannot say is forgotten first: of the
// nodes of a cluster some have read the same past from a snapshot of that version, and from here on
// all must be equal.
func (m *Machine) upgrade(version byte) error {
	f := m.registry.Freeze()
	if m.version < 2 {
		forget(&f)
		beginVersion2(&f)
	}
	if m.version < 3 {
		beginVersion3(&f)
	}
	if version > 3 {
		beginVersion4(&f)
	}
	thawed, coordination, err := thaw(version, f, kvBeside(f)) // there is no coordination below version 4
	if err != nil {
		return fmt.Errorf("make the state one of version %d: %w", version, err)
	}
	m.registry, m.kv, m.version = thawed, coordination, version
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

// beginVersion3 gives a state what version 2 does not say. It follows from what version 2 says, and
// replaces whatever the state knows better.
func beginVersion3(f *registry.Frozen) {
	for i, s := range f.Leases {
		f.Leases[i].Lease, f.Leases[i].Client, f.Leases[i].Remote = leaseSinceVersion2(s.Lease), 0, 0
	}
	for i, r := range f.Removals {
		f.Removals[i].Lease = recordSinceVersion2(r.Lease)
	}
	f.Links, f.Senders, f.Peers = nil, nil, nil
}

// leaseSinceVersion2 has a lease belong to whoever registered it last, who also counts as the author of
// its last change.
func leaseSinceVersion2(l *registry.Lease) *registry.Lease {
	c := recordSinceVersion2(l)
	switch l.Origin.Kind {
	case registry.Client:
		c.ByClient = l.Changed
	case registry.RemoteDC:
		c.ByRemote = l.Changed
	}
	c.Described = l.Registered
	if l.Instance.Overridden != registry.Unknown {
		c.Overrode = l.Changed
	}
	return c
}

// recordSinceVersion2 leaves of the lease in a record of removal what version 2 says: of who is to be
// told, the record's own origin and index say enough.
func recordSinceVersion2(l *registry.Lease) *registry.Lease {
	c := *l
	c.Owner, c.Edit = "", 0
	if l.Origin.Kind == registry.RemoteDC {
		c.Owner = l.Origin.DC
	}
	c.ByClient, c.ByRemote, c.Described, c.Overrode = 0, 0, 0, 0
	return &c
}

// beginVersion4 leaves Index 1 to what was never changed, which Consul's clients cannot be told as 0: whoever
// waits for more than 1 must not miss the first change.
func beginVersion4(f *registry.Frozen) { f.Index = max(f.Index, 1) }
