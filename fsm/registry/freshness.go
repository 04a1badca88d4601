package registry

// AppFreshness is one application's part of Freshness.
type AppFreshness struct {
	App                             string
	Leases, Counted, Fresh, Expired uint32
	// Overdue are counted leases that are not fresh, longest silence first, at most overdueShown.
	Overdue []Overdue
}

// Overdue is a lease that is not fresh.
type Overdue struct {
	Key    Key
	Silent int64 // ms of lease clock since the last renewal
	Ends   int64 // ms of lease clock until it ends; negative: it has ended so long ago
}

// overdueShown bounds AppFreshness.Overdue.
const overdueShown = 20

// Freshness counts what self-preservation counts, at a moment of the lease clock (ms), over the
// leases of the own datacenter, quarantined ones included:
//
//   - counted are those whose life is older than min(renewal interval, duration/3);
//   - fresh, of these, are those renewed within min(2·interval, ⅔·duration), or within the duration
//     where 2·interval exceeds it.
//
// It walks all leases, without a lock; renewal times are live.
func (v *View) Freshness(now int64) Figures { panic("not written") }

// FreshnessByApp is Freshness per application, sorted by name.
func (v *View) FreshnessByApp(now int64) []AppFreshness { panic("not written") }

// Condition says whether self-preservation should be on, given figures that Freshness counted: the
// one function for the decision and for every metric and answer. reason is a sentence with the numbers.
func (v *View) Condition(f Figures) (holds bool, reason string) { panic("not written") }

// NextPreservation is the transition of self-preservation that is due at a moment of the lease clock,
// given figures that Freshness counted; ok is false if none is. The caller fills in the epoch.
func (v *View) NextPreservation(now int64, f Figures) (op SelfPreservation, ok bool) {
	panic("not written")
}

// Preservation is self-preservation now.
func (v *View) Preservation() Preservation { panic("not written") }

// Transitions are the last transitions of self-preservation, newest first.
func (v *View) Transitions() []Preservation { panic("not written") }

// Settings are those of the present leadership.
func (v *View) Settings() Settings { panic("not written") }

// Expectation is upstream's bookkeeping at the view's moment.
type Expectation struct {
	Clients   uint32 // expectedNumberOfClientsSendingRenews
	Threshold uint32 // numberOfRenewsPerMinThreshold
	Renewals  uint32 // of the last complete minute (renewsLastMin)
	Sliding   uint32 // of the last 60 s, estimated from the two buckets
	Allows    bool   // upstream would evict: Threshold > 0 and Renewals > Threshold
}

// Expectation returns upstream's figures, which decide only under Settings.Expectation.
func (v *View) Expectation() Expectation { panic("not written") }

// Victims draws the leases that one eviction round may take: of those due, at most
// n - threshold·n for a registry of n leases, at random by a partial Knuth shuffle; draw(k) returns a
// number in [0, k). due is reordered. Source: AbstractInstanceRegistry.evict.
func (v *View) Victims(due []EvictItem, draw func(k int) int) []EvictItem { panic("not written") }

// Ends is the last moment (lease clock, ms) of a live lease, live as LastRenewal is: its duration
// after the last renewal, or the grace after the present leadership was established.
func (v *View) Ends(l *Lease) int64 { panic("not written") }

// Find returns a live lease, quarantined or not, for operators; ok is false if there is none.
func (v *View) Find(key Key) (l *Lease, ok bool) { panic("not written") }

// Quarantined yields the quarantined leases, sorted by application and id.
func (v *View) Quarantined(yield func(*Lease) bool) { panic("not written") }

// Removal returns the record of a removal; ok is false if there is none, or no longer. It walks the records.
func (v *View) Removal(key Key) (rec Removal, ok bool) { panic("not written") }

// History returns what is remembered of an instance, live or gone, oldest first; live as LastRenewal is.
func (v *View) History(key Key) []Event { panic("not written") }
