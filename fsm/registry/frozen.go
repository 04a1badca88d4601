package registry

// Frozen is the whole state of a Registry at one moment, for a snapshot: a few pointers and a copy
// of the renewal times, made in milliseconds and valid while the registry goes on. Everything that
// has an order has a canonical one, so equal registries freeze to equal values.
type Frozen struct {
	Index       Index
	Clock       Stamp
	Epoch       Epoch
	Established int64 // lease clock when the epoch was established, ms
	Cluster     string
	Slots       uint32   // size of the handle table
	Generation  uint32   // the last one given out
	Free        []uint32 // free slots, in the order in which they will be used
	Leases      []LeaseState
	Removals    []Removal // records of the change list, by Index ascending
	Pruned      Index     // newest record of removal that was pruned; 0: none
	Registered  []Recent  // newest last
	Canceled    []Recent
}

// LeaseState is a live lease and its last renewal, sorted by application and id.
type LeaseState struct {
	Lease   *Lease
	Renewed Stamp
}

// Removal is the record of one removal. Lease is the instance as it was when it went while the delta
// still shows it, and reduced to its key, life and lastDirtyTimestamp afterwards (Full tells).
type Removal struct {
	Kind  ChangeKind
	Full  bool
	Lease *Lease
}

// Freeze captures the state.
func (r *Registry) Freeze() Frozen { panic("not written") }

// Thaw builds a registry from a frozen state, verifying what can be verified (handles unique and
// inside the table, order, indexes not above Index): a snapshot that lies is refused as a whole.
func Thaw(f Frozen) (*Registry, error) { panic("not written") }
