package registry

import (
	"iter"
	"strings"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// tables is what a View shows. Its trees are copy-on-write: share costs a few allocations, and shared content is
// never written again.
type tables struct {
	edition    uint64 // counts the shares: an App of an older edition may be in a View
	apps       order.Map[string, *App]
	ids        order.Tree[Key]      // by id, then application
	vips       order.Tree[vipEntry] // by part of the VIP address, then key
	secureVIPs order.Tree[vipEntry]
	size       int    // number of leases in the tables above
	counts     Counts // the same leases by status

	quarantined order.Tree[*Lease]        // not in the tables above; by application and id
	live        order.Map[Index, *Lease]  // each live instance, quarantined or not, at its last change
	removed     order.Map[Index, Removal] // the records of removals
	pruned      Index                     // the newest record that was pruned
	restored    Index                     // where the newest incarnation began, see Registry.Raise; 0 if none did
	registered  recent
	canceled    recent
	renewals    *renewals
	catalog     *catalog.Tables // set in shared tables
	permanent   int             // how many of the live leases are permanent
	parts       PartIndexes
}

// vipEntry is an entry for one part, vip, of an instance's VIP address.
type vipEntry struct {
	vip string
	key Key
}

func newTables() tables {
	return tables{
		apps:        order.NewMap[string, *App](0),
		ids:         order.NewTree(compareIDs),
		vips:        order.NewTree(compareVIPs),
		secureVIPs:  order.NewTree(compareVIPs),
		quarantined: order.NewTree(compareLeases),
		live:        order.NewMap[Index, *Lease](0),
		removed:     order.NewBoxedMap[Index, Removal](0),
		renewals:    newRenewals(),
	}
}

func compareIDs(a, b Key) int {
	if c := strings.Compare(a.ID, b.ID); c != 0 {
		return c
	}
	return strings.Compare(a.App, b.App)
}

func compareVIPs(a, b vipEntry) int {
	if c := strings.Compare(a.vip, b.vip); c != 0 {
		return c
	}
	return a.key.Compare(b.key)
}

func compareLeases(a, b *Lease) int { return a.Key().Compare(b.Key()) }

// share returns a copy for views.
func (t *tables) share() *tables {
	c := *t
	c.apps, c.live, c.removed = t.apps.Copy(), t.live.Copy(), t.removed.Copy()
	c.ids, c.vips, c.secureVIPs = t.ids.Copy(), t.vips.Copy(), t.secureVIPs.Copy()
	c.quarantined = t.quarantined.Copy()
	t.edition++
	return &c
}

// add enters a new lease.
func (t *tables) add(l *Lease) {
	t.live.Set(l.Changed, l)
	t.permanent += int(one(l.Permanent))
	t.list(l)
}

// replace replaces old by l, the lease of the same key.
func (t *tables) replace(old, l *Lease) {
	t.live.Delete(old.Changed)
	t.live.Set(l.Changed, l)
	t.permanent += int(one(l.Permanent)) - int(one(old.Permanent))
	if old.Quarantine != nil || l.Quarantine != nil {
		t.unlist(old, l.Changed)
		t.list(l)
		return
	}
	t.counts[old.Instance.Status]--
	t.set(l)
	if l.Registered != old.Registered {
		// The indexes then hold strings of the present instance, and do not keep alive those of the first.
		if old.Instance.VIP != l.Instance.VIP || old.Instance.SecureVIP != l.Instance.SecureVIP {
			t.unindex(old)
		}
		t.index(l)
	}
}

// delete removes a lease; changed is the Index of its removal.
func (t *tables) delete(l *Lease, changed Index) {
	t.live.Delete(l.Changed)
	t.permanent -= int(one(l.Permanent))
	t.unlist(l, changed)
}

// list enters a lease where readers look for it: in the lists, or among the quarantined.
func (t *tables) list(l *Lease) {
	if l.Quarantine != nil {
		t.quarantined.Set(l)
		t.touch(l.Instance.App, l.Changed)
		return
	}
	t.size++
	t.set(l)
	t.index(l)
}

// unlist is the inverse of list; changed is the Index of the change that does it.
func (t *tables) unlist(l *Lease, changed Index) {
	key := l.Key()
	if l.Quarantine != nil {
		t.quarantined.Delete(l)
		t.touch(key.App, changed)
		return
	}
	t.size--
	t.counts[l.Instance.Status]--
	t.unindex(l)
	app := t.editable(key.App)
	app.leases.Delete(key.ID)
	app.counts[l.Instance.Status]--
	if app.name(l, &Lease{}) {
		t.parts.rename(changed)
	}
	app.Changed, app.defined = changed, changed
	if app.leases.Len() == 0 {
		t.apps.Delete(key.App)
	}
}

// set enters a lease in its application.
func (t *tables) set(l *Lease) {
	key := l.Key()
	t.counts[l.Instance.Status]++
	app := t.editable(key.App)
	old, ok := app.leases.Set(key.ID, l)
	if ok {
		app.counts[old.Instance.Status]--
	} else {
		old = &Lease{}
	}
	app.counts[l.Instance.Status]++
	if app.name(old, l) {
		t.parts.rename(l.Changed)
	}
	app.Changed, app.defined = max(app.Changed, l.Changed), max(app.defined, l.Defined)
}

// name records the application's name in Consul's API when l replaces old. Either may be the zero Lease. renamed
// reports that instances not registered through that API have another name now.
func (a *App) name(old, l *Lease) (renamed bool) {
	before := a.ServiceName()
	a.services += int(one(l.Service != nil)) - int(one(old.Service != nil))
	if l.Service != nil {
		a.service = l.Service.Name
	}
	return a.ServiceName() != before && a.leases.Len() > a.services
}

// touch records a change of an application, and of its definition, if it has listed instances.
func (t *tables) touch(name string, changed Index) {
	if _, ok := t.apps.Get(name); ok {
		app := t.editable(name)
		app.Changed, app.defined = max(app.Changed, changed), max(app.defined, changed)
	}
}

// editable returns an application that no View shares, making or copying it if needed.
func (t *tables) editable(name string) *App {
	app, ok := t.apps.Get(name)
	switch {
	case !ok:
		// The name outlives the instance that brought it, and must not keep its memory.
		app = &App{Name: strings.Clone(name), edition: t.edition, leases: order.NewMap[string, *Lease](0)}
	case app.edition == t.edition:
		return app
	default:
		app = &App{
			Name: app.Name, Changed: app.Changed, edition: t.edition, leases: app.leases.Copy(),
			services: app.services, service: app.service, defined: app.defined, counts: app.counts,
		}
	}
	t.apps.Set(app.Name, app)
	return app
}

// index enters a lease in the secondary indexes.
func (t *tables) index(l *Lease) {
	key := l.Key()
	t.ids.Set(key)
	for vip := range parts(l.Instance.VIP) {
		t.vips.Set(vipEntry{vip, key})
	}
	for vip := range parts(l.Instance.SecureVIP) {
		t.secureVIPs.Set(vipEntry{vip, key})
	}
}

func (t *tables) unindex(l *Lease) {
	key := l.Key()
	t.ids.Delete(key)
	for vip := range parts(l.Instance.VIP) {
		t.vips.Delete(vipEntry{vip, key})
	}
	for vip := range parts(l.Instance.SecureVIP) {
		t.secureVIPs.Delete(vipEntry{vip, key})
	}
}

// parts yields the first nonempty parts of a comma-separated address, at most MaxVIPs.
func parts(address string) iter.Seq[string] {
	return func(yield func(string) bool) {
		left := MaxVIPs
		for part := range strings.SplitSeq(address, ",") {
			if part == "" {
				continue
			}
			if left--; left < 0 || !yield(part) {
				return
			}
		}
	}
}

// handles is the table of live leases: by slot, and by name. A slot is assigned at registration, kept across
// re-registrations and freed at removal.
type handles struct {
	leases     []*Lease // by slot; nil if free
	slots      map[Key]uint32
	free       []uint32    // the last one is used first
	generation uint64      // the last one assigned; never reset
	undo       *order.Undo // see Registry.Attempt; nil: changes are final
}

func (t *handles) byKey(key Key) *Lease {
	if slot, ok := t.slots[key]; ok {
		return t.leases[slot]
	}
	return nil
}

func (t *handles) byHandle(h Handle) *Lease {
	if uint64(h.Slot) >= uint64(len(t.leases)) {
		return nil
	}
	if l := t.leases[h.Slot]; l != nil && l.Handle.Gen == h.Gen {
		return l
	}
	return nil
}

// assign returns the handle for a lease that is about to begin.
func (t *handles) assign() Handle {
	t.generation++
	if n := len(t.free); n > 0 {
		slot := t.free[n-1]
		t.free = t.free[:n-1]
		if t.undo != nil {
			t.undo.Add(func() { t.free = append(t.free, slot) })
		}
		return Handle{Slot: slot, Gen: t.generation}
	}
	t.leases = append(t.leases, nil)
	if t.undo != nil {
		t.undo.Add(func() { t.leases = t.leases[:len(t.leases)-1] })
	}
	return Handle{Slot: uint32(len(t.leases) - 1), Gen: t.generation}
}

// set makes l the lease of its slot, and its key the slot's. It also renews the key's strings: they should be those
// of the present instance, and not keep alive the ones of the first.
func (t *handles) set(l *Lease) {
	t.keep(l.Handle.Slot, l.Key())
	t.leases[l.Handle.Slot] = l
	t.slots[l.Key()] = l.Handle.Slot
}

func (t *handles) release(l *Lease) {
	t.keep(l.Handle.Slot, l.Key())
	delete(t.slots, l.Key())
	t.leases[l.Handle.Slot] = nil
	t.free = append(t.free, l.Handle.Slot)
	if t.undo != nil {
		t.undo.Add(func() { t.free = t.free[:len(t.free)-1] })
	}
}

// keep makes a failed attempt restore the lease of a slot and the slot of its key.
func (t *handles) keep(slot uint32, key Key) {
	if t.undo == nil {
		return
	}
	lease := t.leases[slot]
	t.undo.Add(func() {
		t.leases[slot] = lease
		if lease == nil {
			delete(t.slots, key)
		} else {
			t.slots[lease.Key()] = slot
		}
	})
}

// ServiceName returns an application's name in Consul's API: as registered there, or else in lower case.
func (a *App) ServiceName() string {
	if a.services > 0 {
		return a.service
	}
	return strings.ToLower(a.Name)
}

func one(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// App is one application of a View: a name and its leases, sorted by id, without the quarantined ones. An application
// without instances does not exist.
type App struct {
	Name string
	// Changed is the Index of the last change of any of its instances.
	Changed Index

	edition uint64 // of the tables that may write it
	leases  order.Map[string, *Lease]
	// How many of them were registered through Consul's API, and under which name.
	services int
	service  string
	defined  Index // the last change of the definition (see Lease.Defined) of any of its instances
	counts   Counts

	on atomic.Pointer[nodesUnder] // what a View found last
}

// Len returns the number of the application's leases.
func (a *App) Len() int { return a.leases.Len() }

// Counts returns the numbers of leases by status.
func (a *App) Counts() Counts { return a.counts }

// Leases yields the application's leases, sorted by id.
func (a *App) Leases() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		a.leases.Scan(func(_ string, l *Lease) bool { return yield(l) })
	}
}

// otherwise returns the one lease with an instance id that was not registered through Consul's API.
func (t *tables) otherwise(id string) (l *Lease, ambiguous bool) {
	n := 0
	count := func(found *Lease) {
		if found.Service == nil {
			l = found
			n++
		}
	}
	t.ids.Ascend(Key{ID: id}, func(key Key) bool {
		if key.ID != id {
			return false
		}
		if app, ok := t.apps.Get(key.App); ok {
			found, _ := app.leases.Get(id)
			count(found)
		}
		return n < 2
	})
	t.quarantined.Scan(func(found *Lease) bool {
		if found.Key().ID == id {
			count(found)
		}
		return n < 2
	})
	if n > 1 {
		return nil, true
	}
	return l, false
}
