package registry

// Registry is the mutable state. It belongs to one goroutine at a time.
type Registry struct{}

// New returns an empty registry.
func New() *Registry { panic("not written") }

// Apply performs one operation at a time told by stamp; term is the Raft term of its log entry.
// It never fails: what cannot be done is an Outcome.
func (r *Registry) Apply(stamp Stamp, term uint64, origin Origin, op Op) Result { panic("not written") }

// Advance moves the lease clock without an operation (an entry that carries none) and prunes what
// has become too old. Apply calls it by itself.
func (r *Registry) Advance(stamp Stamp) { panic("not written") }

// Establish starts an epoch: from now on only its Evicts take effect, and grace begins. cluster is
// kept at its first value.
func (r *Registry) Establish(epoch Epoch, cluster string) { panic("not written") }

// Epoch is the current leadership.
func (r *Registry) Epoch() Epoch { panic("not written") }

// Clock is the lease clock's newest stamp.
func (r *Registry) Clock() Stamp { panic("not written") }

// Expired returns leases that have ended at now (lease clock, ms), oldest end first, at most limit:
// those whose one duration has passed since their last renewal, and for which
// min(duration, renewal interval + 5 s) has passed since the epoch was established. It costs
// O(due leases), not a walk; a lease that is returned and not evicted is returned again.
func (r *Registry) Expired(now int64, limit int) []EvictItem { panic("not written") }

// View returns the present state for readers.
func (r *Registry) View() *View { panic("not written") }
