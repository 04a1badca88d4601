package registry

import (
	"fmt"
	"iter"
	"slices"

	"github.com/tidwall/btree"
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

// RecentlyRegistered yields the last 1000 registrations, re-registrations included, newest first.
func (v *View) RecentlyRegistered() iter.Seq[Recent] { return v.tables.registered.newestFirst() }

// RecentlyCanceled yields the last 1000 cancels, of unknown instances and evictions too, newest first.
func (v *View) RecentlyCanceled() iter.Seq[Recent] { return v.tables.canceled.newestFirst() }

// History returns what is remembered of an instance, live or gone, oldest first; live as LastRenewal
// is. It is empty if the instance went after the view was made.
func (v *View) History(key Key) []Event {
	if l, ok := v.Find(key); ok {
		return v.tables.renewals.past(l.Handle).events()
	}
	rec, _ := v.Removal(key)
	return rec.History.Events()
}

// Timing says by how much (ms) a message of a sender, stamped with its clock, is older than the newest that
// is known of it: what is played again, or was held up on its way, renews nothing. And by how much its clock
// is ahead of what it can show: more has passed on it than here, by the lease clock and the wall clock.
//
// Incarnations have no order, and nothing that is said in one counts in another: a message in the name of
// another server, or one by a broken clock, must not make this side deaf to it. An incarnation that is heard
// after a newer one is late by what has passed here and not on its own clock.
func (v *View) Timing(dc, name string, incarnation uint64, clock int64, now Stamp) (late, ahead int64) {
	return v.known.timing(Sender{DC: dc, Name: name, Incarnation: incarnation, Clock: clock}, now)
}

// Link returns what is known of the link from a datacenter; ok is false if nothing was ever heard.
func (v *View) Link(dc string) (l Link, ok bool) { return find(v.known.links, dc) }

// Senders are all that is known of senders' clocks, by name, datacenter and incarnation. It is not to be changed.
func (v *View) Senders() []Sender { return v.known.senders }

// Sender returns what is known of a sender's clock in an incarnation; ok is false if nothing is. last says that
// none of its others was heard later.
func (v *View) Sender(dc, name string, incarnation uint64) (s Sender, last, ok bool) {
	s = Sender{DC: dc, Name: name, Incarnation: incarnation}
	others := v.known.incarnations(s)
	s, ok = find(v.known.senders, s.name())
	return s, !slices.ContainsFunc(others, func(o Sender) bool { return o.Heard.Lease > s.Heard.Lease }), ok
}

// Peer returns what the state keeps of a peer.
func (v *View) Peer(name string) PeerState {
	p, ok := find(v.known.peers, name)
	if !ok {
		p.Name = name
	}
	return p
}

// Find returns a live lease, quarantined or not, for operators; ok is false if there is none.
func (v *View) Find(key Key) (l *Lease, ok bool) {
	if l, ok := v.Lease(key); ok {
		return l, true
	}
	return v.tables.quarantined.Get(&Lease{Instance: &Instance{InstanceID: key.ID, App: key.App}})
}

// Quarantined yields the quarantined leases, sorted by application and id.
func (v *View) Quarantined(yield func(*Lease) bool) { v.tables.quarantined.Scan(yield) }

// All yields all leases, quarantined ones included, sorted by application and id.
func (v *View) All() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		hidden := v.tables.quarantined.Iter()
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

// Beats is the newest Beat, live.
func (v *View) Beats() Beat { return Beat(v.tables.renewals.beats.Load()) }

// RenewedAfter yields the leases that were renewed after a beat, live: by clients of this datacenter
// and, if remote is set, by remote datacenters too (which is told to nodes of the own datacenter
// only). It walks all leases. Whoever notes Beats before the walk misses none.
func (v *View) RenewedAfter(after Beat, remote bool) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		if v.Beats() <= after {
			return
		}
		v.tables.live.Scan(func(_ Index, l *Lease) bool {
			return !v.tables.renewals.beatAfter(l.Handle, after, remote) || yield(l)
		})
	}
}

// Settings are those of the present leadership.
func (v *View) Settings() Settings { return v.settings }
