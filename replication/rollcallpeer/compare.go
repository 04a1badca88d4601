package rollcallpeer

import (
	"cmp"
	"maps"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// maxListed bounds the instances of one reply, unless a single application has more.
const maxListed = 20_000

// scope is what two servers compare: the instances of one of them, or all.
type scope struct {
	view  *registry.View
	now   int64 // lease clock, ms
	all   bool
	owner string // as in registry.View.Settled; "" means this datacenter
}

// digests returns the digests of all applications.
func (s scope) digests() map[string]registry.Digest {
	digests := make(map[string]registry.Digest)
	for l := range s.view.Comparable(s.now, s.all, s.owner) {
		d := digests[l.Instance.App]
		d.Count++
		d.Sum += l.Sum()
		digests[l.Instance.App] = d
	}
	return digests
}

// differences returns the applications where the asker differs, in the order of their names, as many as fit into a
// reply. Each comes with all its instances, including those that are too young to be compared: the asker must know
// that they are here.
func (s scope) differences(q *Digests) differences {
	a := differences{Apps: make(map[string][]Copy)}
	digests := s.digests()
	var differ []string
	for app, digest := range digests {
		if q.covers(app) && q.Apps[app] != digest {
			differ = append(differ, app)
		}
	}
	for app := range q.Apps {
		if _, ok := digests[app]; !ok && q.covers(app) {
			differ = append(differ, app)
		}
	}
	slices.Sort(differ)
	sizes := make(map[string]int, len(differ))
	s.each(differ, func(l *registry.Lease) { sizes[l.Instance.App]++ })
	total := 0
	for n, app := range differ {
		if n > 0 && total+sizes[app] > maxListed {
			a.More = true
			differ = differ[:n]
			break
		}
		total += sizes[app]
		a.Apps[app] = make([]Copy, 0, sizes[app])
	}
	s.each(differ, func(l *registry.Lease) {
		app := l.Instance.App
		a.Apps[app] = append(a.Apps[app], Copy{ID: l.Instance.ID(), Version: l.Version(), Sum: l.Sum()})
	})
	return a
}

// each calls do with the leases in the scope of some applications, sorted by name, whether or not they are old enough
// to be compared.
func (s scope) each(apps []string, do func(*registry.Lease)) {
	if len(apps) == 0 {
		return
	}
	for l := range s.view.All() {
		if _, ok := slices.BinarySearch(apps, l.Instance.App); ok && (s.all || l.Owner == s.owner) {
			do(l)
		}
	}
}

// maxDiffItems is how many of the differing instances are listed one by one.
const maxDiffItems = 1000

// removalGrace is how long (ms of lease clock) a removal may be in transit before the peer's copy counts as one too
// many; registry.View.Settled gives changes the same time.
const removalGrace = 10_000

// The words for the peer's copy of an instance.
const (
	copyMissing   = "missing"
	copyOlder     = "older"
	copyNewer     = "newer"
	copyDifferent = "different"
	copyExtra     = "extra"
	copyContested = "contested"
)

// comparison is the difference between this side and a peer, and the tasks that make the peer equal.
type comparison struct {
	scope     scope
	consensus bool // this side knows all of its datacenter
	contested func(registry.Key) bool
	// cedesTo is the peer's datacenter, if this side gives up instances that each side attributes to the other. It is
	// "" if this side does not, or if both sides are nodes of one datacenter.
	cedesTo string
	diff    api.PeerDiff
	tasks   []link.Task

	app     string                            // of the last difference
	records map[registry.Key]registry.Removal // nil until needed
}

// add compares with a part of the peer's reply: applications that come after those before.
func (c *comparison) add(apps map[string][]Copy) {
	ours := make(map[string][]*registry.Lease, len(apps))
	for l := range c.scope.view.Comparable(c.scope.now, c.scope.all, c.scope.owner) {
		if _, ok := apps[l.Instance.App]; ok {
			ours[l.Instance.App] = append(ours[l.Instance.App], l)
		}
	}
	for _, app := range slices.Sorted(maps.Keys(apps)) {
		theirs := make(map[string]Copy, len(apps[app]))
		for _, e := range apps[app] {
			theirs[e.ID] = e
		}
		for _, l := range ours[app] {
			id := l.Instance.ID()
			e, ok := theirs[id]
			delete(theirs, id)
			switch {
			case !ok:
				c.addOurs(l.Key(), copyMissing)
			case e.Sum != l.Sum():
				c.addOurs(l.Key(), compareVersions(l.Version(), e.Version))
			}
		}
		for _, id := range slices.Sorted(maps.Keys(theirs)) {
			c.addTheirs(registry.Key{App: app, ID: id}, theirs[id])
		}
	}
}

// compareVersions says what a peer's copy with a different sum is.
func compareVersions(ours, theirs registry.Version) string {
	life := cmp.Compare(theirs.Life, ours.Life)
	said := cmp.Or(life, cmp.Compare(theirs.LastDirty, ours.LastDirty))
	decided := cmp.Or(life, cmp.Compare(theirs.Edit, ours.Edit))
	switch {
	case said <= 0 && decided <= 0 && said+decided < 0:
		return copyOlder
	case said >= 0 && decided >= 0 && said+decided > 0:
		return copyNewer
	}
	return copyDifferent
}

// addOurs adds an instance of this side. If a node has it newer, that comes with that node's comparison. Another
// datacenter compares only its own instances, and sends back what it has newer of this one's when it gets the older.
func (c *comparison) addOurs(key registry.Key, what string) {
	if c.contested(key) {
		c.list(key, copyContested)
		return
	}
	c.list(key, what)
	if what == copyNewer && c.scope.all {
		return
	}
	if what != copyNewer {
		c.diff.Missing++
	}
	c.tasks = append(c.tasks, link.Task{Key: key, Facts: link.Registered})
}

// addTheirs adds an instance that only the peer has, unless it exists here and is merely not compared, or its removal
// may still be in transit.
func (c *comparison) addTheirs(key registry.Key, theirs Copy) {
	if l, ok := c.scope.view.Find(key); ok {
		// Each side may attribute an instance to the other, so that neither would compare it as its own. The peer
		// then gets this side's copy, and becomes its owner.
		switch {
		case c.cedesTo == "" || l.Owner != c.cedesTo:
		case l.Sum() != theirs.Sum:
			c.addOurs(l.Key(), compareVersions(l.Version(), theirs.Version))
		default:
			c.tasks = append(c.tasks, link.Task{Key: l.Key(), Facts: link.Registered})
		}
		return
	}
	rec, known := c.record(key)
	if known && c.scope.now-rec.Lease.ChangedLease < removalGrace {
		return
	}
	remove, ok := c.removal(key, theirs.Version, rec, known)
	if !ok && c.scope.all {
		c.list(key, copyNewer)
		return
	}
	c.list(key, copyExtra)
	c.diff.Extra++
	if ok {
		c.tasks = append(c.tasks, link.Task{Key: key, Facts: link.Canceled, Remove: remove})
	}
}

// removal returns the removal of the peer's copy; ok is false if this side cannot say that it should be removed. A
// cancel is versioned, and so is right from any node. Without a cancel, only a datacenter with consensus knows that
// it does not have an instance: a single node may merely have missed it, and its datacenter's copy elsewhere ends
// without help when no client renews it. A cluster that was founded anew does not know it either
// (registry.View.TellsAbsence). The last renewal of an instance without a record here is not known either: a server
// that heard from its client at all keeps it.
func (c *comparison) removal(key registry.Key, version registry.Version, rec registry.Removal, known bool) (remove registry.Remove, ok bool) {
	recorded := known
	if known {
		remove = c.scope.view.RemoveOf(rec, c.scope.now)
		known = cmp.Or(cmp.Compare(version.Life, remove.Life), cmp.Compare(version.LastDirty, remove.LastDirty)) <= 0
	}
	switch {
	case known && (rec.Kind == registry.Canceled || c.consensus):
		return remove, true
	case c.scope.all || !c.consensus || !recorded && !c.scope.view.TellsAbsence(c.scope.now):
		return registry.Remove{}, false
	}
	return registry.Remove{Key: key, Kind: registry.Evicted, Life: version.Life, LastDirty: version.LastDirty, Age: registry.UnknownAge}, true
}

// record returns the record of an instance's removal; ok is false without one.
func (c *comparison) record(key registry.Key) (rec registry.Removal, ok bool) {
	if c.records == nil {
		c.records = make(map[registry.Key]registry.Removal)
		for rec := range c.scope.view.Removals() {
			c.records[rec.Lease.Key()] = rec
		}
	}
	rec, ok = c.records[key]
	return rec, ok
}

// list lists one instance that differs.
func (c *comparison) list(key registry.Key, what string) {
	if c.app != key.App {
		c.app = key.App
		c.diff.Apps++
	}
	if len(c.diff.Items) < maxDiffItems {
		c.diff.Items = append(c.diff.Items, api.DiffedItem{App: key.App, ID: key.ID, What: what})
	}
}
