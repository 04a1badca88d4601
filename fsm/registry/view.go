package registry

import (
	"fmt"
	"iter"

	"github.com/tidwall/btree"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// View is the registry at one moment: immutable, safe for any number of readers, cheap to make (the
// trees behind it are copy-on-write). Quarantined leases are there for those only who ask for them.
// Renewals and what follows from them (LastRenewal, Ends, Freshness, History) are live data.
type View struct {
	index  Index
	stamp  Stamp
	epoch  string
	tables *tables

	// What decides how leases end.
	graceBegan  int64
	settings    Settings
	transitions []Preservation // newest last
	expectation ExpectationState
	known       *known
}

// App is one application of a View: a name and its leases, sorted by id, without the quarantined. An
// application without instances does not exist.
type App struct {
	Name string
	// Changed is the Index of the last change of any of its instances.
	Changed Index

	edition uint64 // of the tables that may write it
	leases  btree.Map[string, *Lease]
	// How many of them were registered through Consul's API, and as what.
	services int
	service  string
}

// Index is the number of the last change contained in the view.
func (v *View) Index() Index { return v.index }

// Stamp is the time of the newest operation contained in the view, changes or not.
func (v *View) Stamp() Stamp { return v.stamp }

// Epoch names the history that the view's indexes belong to (the cluster's id); indexes of different
// epochs cannot be compared. Empty until the first leader was established.
func (v *View) Epoch() string { return v.epoch }

// Len is the number of leases, without the quarantined.
func (v *View) Len() int { return v.tables.size }

// Total is the number of leases, quarantined ones included.
func (v *View) Total() int { return v.tables.live.Len() }

// Lease returns one lease that is not quarantined.
func (v *View) Lease(key Key) (*Lease, bool) {
	app, ok := v.tables.apps.Get(key.App)
	if !ok {
		return nil, false
	}
	return app.leases.Get(key.ID)
}

// Permanent yields the leases that never end, quarantined ones included, in the order of their changes.
func (v *View) Permanent(yield func(*Lease) bool) {
	if v.tables.permanent == 0 {
		return
	}
	v.tables.live.Scan(func(_ Index, l *Lease) bool { return !l.Permanent || yield(l) })
}

// LastRenewal returns when a lease was last renewed, live: it may be newer than the view. Of a lease
// that is gone by now, it is the last renewal that the lease itself knows of.
func (v *View) LastRenewal(l *Lease) Stamp {
	if s, ok := v.tables.renewals.last(l.Handle); ok {
		return s
	}
	return l.RenewedAt
}

// App returns one application, by its upper-case name.
func (v *View) App(name string) (*App, bool) { return v.tables.apps.Get(name) }

// Apps yields the applications, sorted by name.
func (v *View) Apps() iter.Seq[*App] {
	return func(yield func(*App) bool) {
		v.tables.apps.Scan(func(_ string, app *App) bool { return yield(app) })
	}
}

// Leases yields all leases but the quarantined, sorted by application and id.
func (v *View) Leases() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		v.tables.apps.Scan(func(_ string, app *App) bool {
			more := true
			app.leases.Scan(func(_ string, l *Lease) bool {
				more = yield(l)
				return more
			})
			return more
		})
	}
}

// Len is the number of the application's leases.
func (a *App) Len() int { return a.leases.Len() }

// Leases yields the application's leases, sorted by id.
func (a *App) Leases() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		a.leases.Scan(func(_ string, l *Lease) bool { return yield(l) })
	}
}

// ByID yields the leases with an id in whatever application, sorted by application, by an index.
func (v *View) ByID(id string) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		v.tables.ids.Ascend(Key{ID: id}, func(key Key) bool {
			return key.ID == id && yield(v.mustLease(key))
		})
	}
}

// ByVIP yields the leases that have vip among the comma-separated parts of their VIP address,
// sorted by application and id, by an index. Parts are compared exactly: no trimming, case matters.
func (v *View) ByVIP(vip string) iter.Seq[*Lease] { return v.byVIP(v.tables.vips, vip) }

// BySecureVIP is ByVIP for the secure VIP address.
func (v *View) BySecureVIP(vip string) iter.Seq[*Lease] { return v.byVIP(v.tables.secureVIPs, vip) }

func (v *View) byVIP(index *btree.BTreeG[vipEntry], vip string) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		index.Ascend(vipEntry{vip: vip}, func(e vipEntry) bool {
			return e.vip == vip && yield(v.mustLease(e.key))
		})
	}
}

// mustLease returns the lease of a key that an index of the same tables holds.
func (v *View) mustLease(key Key) *Lease {
	l, ok := v.Lease(key)
	if !ok {
		panic(fmt.Sprintf("registry: %s is in an index and not in the table", key))
	}
	return l
}

// Recent is an entry of one of the two recent queues.
type Recent struct {
	Wall int64 // ms since the epoch
	Key  Key
}

// Fields walks one of the last registrations or cancels.
func (r *Recent) Fields(c *codec.Codec) {
	c.Int64(&r.Wall)
	r.Key.Fields(c)
}

// RecentlyRegistered yields the last 1000 registrations, re-registrations included, newest first.
func (v *View) RecentlyRegistered() iter.Seq[Recent] { return v.tables.registered.newestFirst() }

// RecentlyCanceled yields the last 1000 cancels, of unknown instances and evictions too, newest first.
func (v *View) RecentlyCanceled() iter.Seq[Recent] { return v.tables.canceled.newestFirst() }
