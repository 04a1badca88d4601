package registry

// Index counts the changes that readers see, one step per operation; an Evict counts one per lease
// it removes, so that a reader of the change list can stop between any two. Renewals, ticks,
// transitions of self-preservation, refused operations and those that change nothing take none.
type Index uint64

// Stamp is the time of a log entry. Lease is the lease clock in ms: it decides expiry, runs only
// while a leader serves, and is never compared with a wall clock. Wall is ms since the epoch, for
// the timestamps that clients see.
type Stamp struct{ Lease, Wall int64 }

// Origin says who sent an operation, and so which status rules hold (a replicated one skips
// LeaseExists and is compared by lastDirtyTimestamp both ways).
type Origin struct {
	Kind OriginKind
	DC   string // the remote datacenter's or Eureka server's name, for RemoteDC only
}

// OriginKind tells clients, nodes of the own datacenter and remote datacenters apart.
type OriginKind uint8

// The origins.
const (
	Client OriginKind = iota
	LocalPeer
	RemoteDC
)

// FromClient is the origin of what a client sent.
var FromClient = Origin{Kind: Client}

// FromEureka is the origin of what an unnamed Eureka server replicated.
var FromEureka = Origin{Kind: RemoteDC, DC: "eureka"}

// Replicated says that another server had the operation first.
func (o Origin) Replicated() bool { return o.Kind != Client }

// Handle is the log's short name of a lease: a slot of a table and the generation of its content.
// The zero Handle names nothing; generations start at 1 and are never reused.
type Handle struct {
	Slot uint32
	Gen  uint64
}

// Op is one operation: the closed set of structs below.
type Op interface{ isOp() }

// Register adds an instance or replaces it; see Registry for the conflict rule. Result.Handle names
// the lease.
type Register struct{ Instance *Instance }

// Renew is a heartbeat. In log entries Handle stands for Key wherever the sender knew one; a dead
// handle is answered GoneHandle and is then sent again by name.
type Renew struct {
	Key        Key
	Handle     Handle
	LastDirty  int64  // ms; 0 means not given: no comparison
	Overridden Status // the sender's override, replication by Eureka servers only; Unknown means none
	// Life and Age are given by other Rollcall servers only: the life that was renewed (0: not given,
	// no comparison), and how long ago that was (ms). The version is then (Life, LastDirty).
	Life uint32
	Age  int64
}

// Cancel removes an instance and its override.
type Cancel struct{ Key Key }

// SetOverride forces a status until DeleteOverride or its end, whatever the client says (except DOWN
// and STARTING, which win). LastDirty is taken over if newer than the stored one.
type SetOverride struct {
	Key       Key
	Status    Status
	LastDirty int64
	For       int64 // ms of lease clock after which the leader ends it; 0: never
	By        Act
}

// DeleteOverride ends an override; the instance falls back to Fallback (normally Unknown, which
// makes its next heartbeat a 404 and so the client register again).
type DeleteOverride struct {
	Key       Key
	Fallback  Status
	LastDirty int64
	By        Act
}

// EndOverride ends an override at its time: the instance gets the status that its client reported
// last. The leader proposes it, fenced like Evict; Set is Override.Set of the override it means.
type EndOverride struct {
	Epoch  Epoch
	Handle Handle
	Set    Index
}

// Quarantine hides an instance from every list and delta for a time, while its heartbeats and
// registrations are accepted. For (ms of lease clock) of 0 ends a quarantine now. It survives a
// cancel: an instance that registers again before its end is hidden again.
type Quarantine struct {
	Key Key
	For int64
	By  Act
}

// EndQuarantine ends a quarantine at its time, as EndOverride does an override.
type EndQuarantine struct {
	Epoch  Epoch
	Handle Handle
	Set    Index
}

// SelfPreservation is a transition of self-preservation. The leader's own (By is zero) are fenced
// like Evict, and take effect only in the state From. An operator's may go to PreservationReleased
// (from on or held) or PreservationHeld (from any state; For, in ms of lease clock, is required).
// It takes no Index: no list changes.
type SelfPreservation struct {
	Epoch   Epoch
	From    PreservationState
	To      PreservationState
	For     int64
	By      Act
	Figures Figures
}

// UpdateMetadata merges pairs into an instance's metadata; nothing can be removed.
type UpdateMetadata struct {
	Key   Key
	Pairs []Pair
}

// Epoch is a leadership: the Raft term and index of its Establish entry.
type Epoch struct{ Term, Index uint64 }

// EvictItem names one lease as the proposer saw it. Apply drops the item if anything differs.
type EvictItem struct {
	Handle     Handle
	Registered Index // Lease.Registered
	RenewedAt  int64 // lease clock, ms
}

// Evict removes expired leases, the victims of one round. It is fenced: only an entry of Epoch's own term, under that epoch,
// takes effect. Each removal is a change with an Index of its own.
type Evict struct {
	Epoch Epoch
	Items []EvictItem
}

func (Register) isOp()       {}
func (Renew) isOp()          {}
func (Cancel) isOp()         {}
func (SetOverride) isOp()    {}
func (DeleteOverride) isOp() {}
func (UpdateMetadata) isOp() {}
func (Evict) isOp()          {}

func (EndOverride) isOp()      {}
func (Quarantine) isOp()       {}
func (EndQuarantine) isOp()    {}
func (SelfPreservation) isOp() {}

// Outcome is what became of an operation.
type Outcome uint8

// The outcomes.
const (
	// Done: the operation took effect, or what it asks for holds already.
	Done Outcome = iota
	// NotFound: there is no such lease, or (Renew) its status is UNKNOWN. The client registers again.
	NotFound
	// Newer: Renew, the sender's copy is newer than the stored one. The lease was renewed; the
	// sender is to register.
	Newer
	// Older: an operation of a replicator, the stored copy is newer (of a Replica: one of its halves
	// is; the other was taken if it is newer itself); the sender takes it over.
	Older
	// KeptExisting: Register, the stored instance was newer and stays, in a new lease.
	KeptExisting
	// GoneHandle: Renew by a handle whose generation is dead.
	GoneHandle
	// Refused: an operation of the leader under another epoch; a SelfPreservation that does not fit
	// the present state; a replicated Register, Replica or Renew that is not newer than the cancel of
	// its instance; a Replica whose lease has ended.
	Refused
	// UnknownService: RegisterCatalog, a check names a service that its node does not have.
	UnknownService
	// NameTaken: RegisterCatalog, the application has another spelling already.
	NameTaken
	// NoTTL: SetCheck, the check expects no heartbeats.
	NoTTL
	// TooManyChecks: RegisterCatalog, it has more than MaxChecks, or a service or node would have more than it
	// may.
	TooManyChecks
	// AddressTaken: RegisterCatalog, the logical node has a service of that id with another address.
	AddressTaken
	// CheckTaken: RegisterCatalog, the logical node has a check of that id for something else.
	CheckTaken
)

// Result is the answer to one operation.
type Result struct {
	Outcome Outcome
	Index   Index  // of the (last) change; 0 if there was none
	Handle  Handle // Register: the lease's handle
	Count   int    // Evict: how many leases went
}
