package registry

import (
	"fmt"
	"iter"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// View is the registry at one moment: immutable, safe for any number of readers, cheap to make (the trees behind it
// are copy-on-write). Only methods that say so yield quarantined leases. Renewals and what follows from them
// (LastRenewal, Ends, Freshness, History) are live data.
type View struct {
	index  Index
	stamp  Stamp
	epoch  string
	level  byte // of the formats
	tables *tables

	// These decide how leases end.
	graces      graces
	settings    Settings
	transitions []Preservation // newest last
	expectation ExpectationState
	servers     *otherServers
}

// Index returns the number of the last change contained in the view.
func (v *View) Index() Index { return v.index }

// Stamp returns the time of the newest operation contained in the view, whether or not it changed anything.
func (v *View) Stamp() Stamp { return v.stamp }

// Epoch names the history that the view's indexes belong to (the cluster's id); indexes of different epochs cannot be
// compared. It is empty until the first leader is established.
func (v *View) Epoch() string { return v.epoch }

// Len returns the number of leases, without the quarantined.
func (v *View) Len() int { return v.tables.size }

// Total returns the number of leases, including the quarantined.
func (v *View) Total() int { return v.tables.live.Len() }

// Lease returns one lease that is not quarantined.
func (v *View) Lease(key Key) (*Lease, bool) {
	app, ok := v.tables.apps.Get(key.App)
	if !ok {
		return nil, false
	}
	return app.leases.Get(key.ID)
}

// Permanent yields the leases that never end, including the quarantined, in the order of their changes.
func (v *View) Permanent(yield func(*Lease) bool) {
	if v.tables.permanent == 0 {
		return
	}
	v.tables.live.Scan(func(_ Index, l *Lease) bool { return !l.Permanent || yield(l) })
}

// LastRenewal returns when a lease was last renewed, live: it may be newer than the view. For a lease that is already
// gone, it is the last renewal recorded in the lease itself.
func (v *View) LastRenewal(l *Lease) Stamp {
	if s, ok := v.tables.renewals.last(l); ok {
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

// Leases yields all leases except the quarantined, sorted by application and id.
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

// ByID yields the leases with an id in any application, sorted by application, from an index.
func (v *View) ByID(id string) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		v.tables.ids.Ascend(Key{ID: id}, func(key Key) bool {
			return key.ID == id && yield(v.mustLease(key))
		})
	}
}

// ByVIP yields the leases that have vip among the comma-separated parts of their VIP address, sorted by application
// and id, from an index. Parts are compared exactly: no trimming, case matters.
func (v *View) ByVIP(vip string) iter.Seq[*Lease] { return v.byVIP(v.tables.vips, vip) }

// BySecureVIP does what ByVIP does, for the secure VIP address.
func (v *View) BySecureVIP(vip string) iter.Seq[*Lease] { return v.byVIP(v.tables.secureVIPs, vip) }

func (v *View) byVIP(index order.Tree[vipEntry], vip string) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		index.Ascend(vipEntry{vip: vip}, func(e vipEntry) bool {
			return e.vip == vip && yield(v.mustLease(e.key))
		})
	}
}

// mustLease returns the lease of a key found in an index of the same tables.
func (v *View) mustLease(key Key) *Lease {
	l, ok := v.Lease(key)
	if !ok {
		panic(fmt.Sprintf("registry: %s is in an index and not in the table", key))
	}
	return l
}

// RecentlyRegistered yields the last 1000 registrations, re-registrations included, newest first.
func (v *View) RecentlyRegistered() iter.Seq[Recent] { return v.tables.registered.newestFirst() }

// RecentlyCanceled yields the last 1000 cancels, including those of unknown instances and evictions, newest first.
func (v *View) RecentlyCanceled() iter.Seq[Recent] { return v.tables.canceled.newestFirst() }

// History returns the remembered events of an instance, live or gone, oldest first. It is live as LastRenewal is, and
// empty if the instance went after the view was made.
func (v *View) History(key Key) []Event {
	if l, ok := v.Find(key); ok {
		return v.tables.renewals.past(l).events()
	}
	rec, _ := v.Removal(key)
	return rec.History.Events()
}

// Find returns a live lease, quarantined or not, for operators; ok is false if no live lease has the key.
func (v *View) Find(key Key) (l *Lease, ok bool) {
	if l, ok := v.Lease(key); ok {
		return l, true
	}
	return v.tables.quarantined.Get(&Lease{Instance: &Instance{InstanceID: key.ID, App: key.App}})
}

// Quarantined yields the quarantined leases, sorted by application and id.
func (v *View) Quarantined(yield func(*Lease) bool) { v.tables.quarantined.Scan(yield) }

// All yields all leases, including the quarantined, sorted by application and id.
func (v *View) All() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		hidden := order.NewCursor(v.tables.quarantined)
		more := hidden.First()
		for l := range v.Leases() {
			for more && compareLeases(hidden.Item(), l) < 0 {
				if !yield(hidden.Item()) {
					return
				}
				more = hidden.Next()
			}
			if !yield(l) {
				return
			}
		}
		for more && yield(hidden.Item()) {
			more = hidden.Next()
		}
	}
}

// Settings returns the settings of the present leadership.
func (v *View) Settings() Settings { return v.settings }

// Removal returns the record of a removal; ok is false if no record exists, or no longer. It walks the records,
// newest first.
func (v *View) Removal(key Key) (rec Removal, ok bool) {
	v.tables.removed.Reverse(func(_ Index, m Removal) bool {
		if ok = m.Lease.Key() == key; ok {
			rec = m
		}
		return !ok
	})
	return rec, ok
}

// Ends returns the last moment (lease clock, ms) of a live lease, live as LastRenewal is: its duration after the last
// renewal, or a grace, see localEnd. A lease of another datacenter gets 30 s more, because its renewals arrive later,
// and one full duration after the link came up again. A permanent lease never ends: math.MaxInt64.
func (v *View) Ends(l *Lease) int64 {
	return v.servers.endsAt(l, v.LastRenewal(l).Lease, v.graces, v.settings.DoubledLease)
}

// InGrace reports whether a lease cannot end yet at the moment now because a leadership was established at another
// (lease clock, ms).
func (v *View) InGrace(l *Lease, established, now int64) bool {
	if !v.graces.each {
		established = min(established, livedUntil(l, v.LastRenewal(l).Lease, v.settings.DoubledLease))
	}
	return now <= established+l.grace()
}

// Removals yields the records of removals, oldest first.
func (v *View) Removals() iter.Seq[Removal] {
	return func(yield func(Removal) bool) {
		v.tables.removed.Scan(func(_ Index, rec Removal) bool { return yield(rec) })
	}
}

// Level returns the level of the formats whose rules made this state.
func (v *View) Level() byte { return v.level }

// WaitingOverride returns the override that a removed instance would get if it came back at a moment of the lease
// clock (ms), or nil.
func (v *View) WaitingOverride(rec Removal, now int64) *Override { return rec.waiting(v.level, now) }

// View returns the present state for readers. It costs a handful of small allocations after a change, otherwise one.
func (r *Registry) View() *View {
	if r.shared == nil {
		r.shared = r.tables.share()
		r.shared.catalog = r.catalog.Share()
	}
	return &View{
		level:       r.level,
		index:       r.index,
		stamp:       r.clock,
		epoch:       r.cluster,
		tables:      r.shared,
		graces:      r.graces(),
		settings:    r.settings,
		transitions: r.transitions,
		expectation: r.expectation,
		servers:     r.servers,
	}
}
