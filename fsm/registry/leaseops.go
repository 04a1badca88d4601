package registry

import "github.com/seed-20419f34/rollcall/fsm/codec"

// Register adds or replaces an instance; see Registry for the conflict rule. Result.Handle names the lease.
type Register struct{ Instance *Instance }

func (Register) kind() byte { return 2 }

func (op Register) fields(c *codec.Codec) Register {
	body(c, &op.Instance)
	return op
}

// Renew is a heartbeat. In log entries, Handle replaces Key whenever the sender knows one; a dead handle gets
// DeadHandle, and the renewal is then sent again by name.
type Renew struct {
	Key        Key
	Handle     Handle
	LastDirty  int64  // ms; 0 means not given: no comparison
	Overridden Status // the sender's override, only from replicating Eureka servers; Unknown means none
	// Life and Age are given by other Rollcall servers only: the renewed life (0: not given, not compared), and how
	// long ago it was renewed (ms). The version is then (Life, LastDirty).
	Life uint32
	Age  int64
	// Status is the client's own, given by nodes that know a different one under the same timestamp; see believe.
	Status Status
	Yields bool // see Replica
}

func (Renew) kind() byte { return 1 }

// fields walks a client's renewal by its handle, in at most 14 bytes with the kind, and the renewals of other servers
// by name.
func (op Renew) fields(c *codec.Codec) Renew {
	if op.NeedsName() {
		op.Handle = Handle{} // leaves no room for the other fields
	}
	c.Uint64(&op.Handle.Gen) // 0: by name
	if op.Handle.Gen != 0 {
		c.Uint32(&op.Handle.Slot)
		c.Int64(&op.LastDirty)
		return op
	}
	op.Key.Fields(c)
	c.Int64(&op.LastDirty)
	op.Overridden.fields(c)
	c.Uint32(&op.Life)
	c.Int64(&op.Age)
	if c.Since(3, false) { // below level 3 it is ignored
		op.Status.fields(c)
	}
	yields(c, &op.Yields)
	return op
}

// NeedsName reports whether a renewal carries something that the form with a handle has no room for.
func (op Renew) NeedsName() bool {
	return op.Overridden != Unknown || op.Life != 0 || op.Age != 0 || op.Status != Unknown
}

// Cancel removes an instance. What operators decided about it goes too, except a quarantine and an override that
// outlasts it (Lease.outlasts), which wait in the record of the removal.
type Cancel struct{ Key Key }

func (Cancel) kind() byte { return 3 }

func (op Cancel) fields(c *codec.Codec) Cancel {
	op.Key.Fields(c)
	return op
}

// SetOverride forces a status until DeleteOverride or its end, whatever the client says (except DOWN and STARTING,
// which win). LastDirty is adopted if it is newer than the stored one.
type SetOverride struct {
	Key       Key
	Status    Status
	LastDirty int64
	For       int64 // ms of lease clock after which the leader ends it; 0: never
	By        Act
	Drain     bool // see Override
}

func (SetOverride) kind() byte { return 4 }

func (op SetOverride) fields(c *codec.Codec) SetOverride {
	op.Key.Fields(c)
	op.Status.fields(c)
	c.Int64(&op.LastDirty)
	c.Int64(&op.For)
	op.By.Fields(c)
	if c.Since(3, false) {
		c.Bool(&op.Drain)
	}
	return op
}

// DeleteOverride ends an override; the instance falls back to Fallback (normally Unknown, which answers its next
// heartbeat with 404, so that the client registers again). It also ends an override that waits in a record of a
// removal.
type DeleteOverride struct {
	Key       Key
	Fallback  Status
	LastDirty int64
	By        Act
}

func (DeleteOverride) kind() byte { return 5 }

func (op DeleteOverride) fields(c *codec.Codec) DeleteOverride {
	op.Key.Fields(c)
	op.Fallback.fields(c)
	c.Int64(&op.LastDirty)
	op.By.Fields(c)
	return op
}

// EndOverride ends an override when its time is up: the instance gets the status that its client reported last. The
// leader proposes it, fenced like Evict; Set is Override.Set of the override it means.
type EndOverride struct {
	Epoch  Epoch
	Handle Handle
	Set    Index
}

func (EndOverride) kind() byte { return 6 }

func (op EndOverride) fields(c *codec.Codec) EndOverride {
	op.Epoch.Fields(c)
	op.Handle.fields(c)
	codec.Uint(c, &op.Set)
	return op
}

// Quarantine hides an instance from every list and delta for a time, while its heartbeats and registrations are
// accepted. For is in ms of lease clock; 0 ends a quarantine now. A quarantine survives a cancel: an instance that
// registers again before its end is hidden again.
type Quarantine struct {
	Key Key
	For int64
	By  Act
}

func (Quarantine) kind() byte { return 8 }

func (op Quarantine) fields(c *codec.Codec) Quarantine {
	op.Key.Fields(c)
	c.Int64(&op.For)
	op.By.Fields(c)
	return op
}

// EndQuarantine ends a quarantine when its time is up, as EndOverride ends an override.
type EndQuarantine struct {
	Epoch  Epoch
	Handle Handle
	Set    Index
}

func (EndQuarantine) kind() byte { return 9 }

func (op EndQuarantine) fields(c *codec.Codec) EndQuarantine {
	op.Epoch.Fields(c)
	op.Handle.fields(c)
	codec.Uint(c, &op.Set)
	return op
}

// SelfPreservation is a transition of self-preservation. The leader's own (By is zero) are fenced like Evict, and
// take effect only in the state From. An operator's may lead to PreservationReleased (from on or held) or
// PreservationHeld (from any state; For, in ms of lease clock, is required). It takes no Index: no list changes.
type SelfPreservation struct {
	Epoch   Epoch
	From    PreservationState
	To      PreservationState
	For     int64
	By      Act
	Figures Figures
}

func (SelfPreservation) kind() byte { return 11 }

func (op SelfPreservation) fields(c *codec.Codec) SelfPreservation {
	op.Epoch.Fields(c)
	op.From.fields(c)
	op.To.fields(c)
	c.Int64(&op.For)
	op.By.Fields(c)
	op.Figures.fields(c)
	return op
}

// UpdateMetadata merges pairs into an instance's metadata; it cannot remove any.
type UpdateMetadata struct {
	Key   Key
	Pairs []Pair
}

func (UpdateMetadata) kind() byte { return 7 }

func (op UpdateMetadata) fields(c *codec.Codec) UpdateMetadata {
	op.Key.Fields(c)
	c.Pairs(&op.Pairs)
	return op
}

// EvictItem names one lease as the proposer saw it. Apply drops the item if anything differs.
type EvictItem struct {
	Handle     Handle
	Registered Index // Lease.Registered
	RenewedAt  int64 // lease clock, ms
}

func (i *EvictItem) fields(c *codec.Codec) {
	i.Handle.fields(c)
	codec.Uint(c, &i.Registered)
	c.Int64(&i.RenewedAt)
}

// Evict removes expired leases, the victims of one round. It is fenced: it takes effect only in an entry of Epoch's
// own term, under that epoch. Each removal is a change with its own Index.
type Evict struct {
	Epoch Epoch
	Items []EvictItem
}

func (Evict) kind() byte { return 10 }

func (op Evict) fields(c *codec.Codec) Evict {
	op.Epoch.Fields(c)
	codec.List(c, &op.Items, 4, (*EvictItem).fields)
	return op
}
