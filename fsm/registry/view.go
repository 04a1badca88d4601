package registry

import "iter"

// View is the registry at one moment: immutable, safe for any number of readers, cheap to make (the
// trees behind it are copy-on-write). Only LastRenewal looks at live data.
type View struct {
	index Index
	stamp Stamp
	epoch string
}

// App is one application of a View: a name and its leases, sorted by id. An application without
// instances does not exist.
type App struct {
	Name string
	// Changed is the Index of the last change of any of its instances.
	Changed Index
}

// Index is the number of the last change contained in the view.
func (v *View) Index() Index { return v.index }

// Stamp is the time of the newest operation contained in the view, changes or not.
func (v *View) Stamp() Stamp { return v.stamp }

// Epoch names the history that the view's indexes belong to (the cluster's id); indexes of different
// epochs cannot be compared. Empty until the first leader was established.
func (v *View) Epoch() string { return v.epoch }

// Len is the number of leases.
func (v *View) Len() int { panic("not written") }

// Lease returns one lease.
func (v *View) Lease(key Key) (*Lease, bool) { panic("not written") }

// LastRenewal returns when a lease was last renewed, live: it may be newer than the view.
func (v *View) LastRenewal(l *Lease) Stamp { panic("not written") }

// App returns one application, by its upper-case name.
func (v *View) App(name string) (*App, bool) { panic("not written") }

// Apps yields the applications, sorted by name.
func (v *View) Apps() iter.Seq[*App] { panic("not written") }

// Leases yields all leases, sorted by application and id.
func (v *View) Leases() iter.Seq[*Lease] { panic("not written") }

// Len is the number of the application's leases.
func (a *App) Len() int { panic("not written") }

// Leases yields the application's leases, sorted by id.
func (a *App) Leases() iter.Seq[*Lease] { panic("not written") }

// ByID yields the leases with an id in whatever application, sorted by application, by an index.
func (v *View) ByID(id string) iter.Seq[*Lease] { panic("not written") }

// ByVIP yields the leases that have vip among the comma-separated parts of their VIP address,
// sorted by application and id, by an index. Parts are compared exactly: no trimming, case matters.
func (v *View) ByVIP(vip string) iter.Seq[*Lease] { panic("not written") }

// BySecureVIP is ByVIP for the secure VIP address.
func (v *View) BySecureVIP(vip string) iter.Seq[*Lease] { panic("not written") }

// HashCode is apps__hashcode: for each status with instances, in lexicographic order, NAME_COUNT_.
// Source: com.netflix.discovery.shared.Applications.getReconcileHashCode.
func (v *View) HashCode() string { panic("not written") }

// Delta is what changed within the delta window (180 s of lease clock, cut in steps of 30 s, so an
// entry lives 180 to 210 s): each instance once, in its current or last state, grouped by
// application, sorted by application, and inside it removed instances after the others.
type Delta struct {
	Leases   []*Lease
	HashCode string // of the whole registry, of the same moment
	// Version changes with every change and every step, and never goes back within an epoch.
	Version uint64
}

// DeltaStep numbers the 30 s steps of the lease clock; two deltas of one Index and one step are equal.
func (v *View) DeltaStep() int64 { panic("not written") }

// Delta cuts the delta out of the change list: O(changes in the window).
func (v *View) Delta() Delta { panic("not written") }

// Recent is an entry of one of the two recent queues.
type Recent struct {
	Wall int64 // ms since the epoch
	Key  Key
}

// RecentlyRegistered yields the last 1000 registrations, re-registrations included, newest first.
func (v *View) RecentlyRegistered() iter.Seq[Recent] { panic("not written") }

// RecentlyCanceled yields the last 1000 cancels, of unknown instances and evictions too, newest first.
func (v *View) RecentlyCanceled() iter.Seq[Recent] { panic("not written") }

// Change is an element of the change list: a live instance at its last change, or the record of a
// removal.
type Change struct {
	Index Index
	Lease *Lease // a removed one has EvictedAt set; after the delta window only its key, life and dirty timestamp are kept
	Kind  ChangeKind
}

// ChangeKind says what a Change is.
type ChangeKind uint8

// The kinds. Evicted and Canceled are records of removal.
const (
	Live ChangeKind = iota
	Canceled
	Evicted
)

// Changes returns the elements of the change list after an index, oldest first, at most limit (0: all).
// It fails with ErrTooOld if records newer than after were pruned already.
func (v *View) Changes(after Index, limit int) ([]Change, error) { panic("not written") }
