package client

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Snapshot is the list of instances at one moment. It is immutable, and what it returns must not be
// changed. Lists are sorted by application and id. The zero Snapshot is the empty list.
type Snapshot struct {
	size   int
	counts [registry.OutOfService + 1]int // instances by status
	all    listings                       // by application
	// Those that are UP: lists that are asked for at every call of a service are made when they change,
	// not when they are asked for.
	up         listings // by application
	vips       listings
	secureVIPs listings
}

// Len is the number of instances, whatever their status.
func (s *Snapshot) Len() int { return s.size }

// All ranges over all instances, whatever their status.
func (s *Snapshot) All() iter.Seq[*registry.Instance] {
	return func(yield func(*registry.Instance) bool) {
		for _, app := range s.all {
			for _, i := range app.members {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// Apps returns the names of the applications that have instances, in upper case.
func (s *Snapshot) Apps() []string {
	names := make([]string, len(s.all))
	for n, app := range s.all {
		names[n] = app.name
	}
	return names
}

// Instance returns one instance, whatever its status; nil if there is none.
func (s *Snapshot) Instance(key registry.Key) *registry.Instance {
	members := s.all.get(key.App)
	at, found := slices.BinarySearchFunc(members, key.ID, func(i *registry.Instance, id string) int {
		return strings.Compare(i.ID(), id)
	})
	if !found {
		return nil
	}
	return members[at]
}

// App returns the instances of an application that are UP. The name may be in any case.
func (s *Snapshot) App(name string) []*registry.Instance { return s.up.get(name) }

// VIP returns the instances that are UP and have a VIP address among theirs, which are separated by commas
// and may have blanks around them. It may be in any case, as upstream
// (Applications.getInstancesByVirtualHostName).
func (s *Snapshot) VIP(address string) []*registry.Instance { return s.vips.get(address) }

// SecureVIP is VIP for secure VIP addresses.
func (s *Snapshot) SecureVIP(address string) []*registry.Instance { return s.secureVIPs.get(address) }

// hashOrder is the lexicographic order of the names of statuses.
var hashOrder = [...]registry.Status{registry.Down, registry.OutOfService, registry.Starting, registry.Unknown, registry.Up}

// HashCode is apps__hashcode of the list: for each status with instances, in lexicographic order,
// NAME_COUNT_. Source: com.netflix.discovery.shared.Applications.getReconcileHashCode.
func (s *Snapshot) HashCode() string {
	var b strings.Builder
	for _, status := range hashOrder {
		if n := s.counts[status]; n > 0 {
			b.WriteString(status.String() + "_" + strconv.Itoa(n) + "_")
		}
	}
	return b.String()
}

// edit begins another Snapshot from this one, which stays as it is. It costs what is changed and the
// pointers of the lists that the change is in, not what there is.
func (s *Snapshot) edit() *snapshotEdit {
	return &snapshotEdit{from: s, changed: make(map[registry.Key]*registry.Instance)}
}

// snapshotEdit is a Snapshot in the making. It belongs to one goroutine.
type snapshotEdit struct {
	from    *Snapshot
	changed map[registry.Key]*registry.Instance // where it differs from from; nil: removed
}

// put adds or replaces an instance; changed is false if it was there, equal (sameInstance).
func (e *snapshotEdit) put(i *registry.Instance) (changed bool) {
	key := i.Key()
	if was := e.instance(key); was != nil && sameInstance(was, i) {
		return false
	}
	if was := e.from.Instance(key); was != nil && sameInstance(was, i) {
		delete(e.changed, key)
		return true
	}
	e.changed[key] = i
	return true
}

// remove removes an instance, if it is there.
func (e *snapshotEdit) remove(key registry.Key) (changed bool) {
	if e.instance(key) == nil {
		return false
	}
	if e.from.Instance(key) == nil {
		delete(e.changed, key)
		return true
	}
	e.changed[key] = nil
	return true
}

// instance is the present one of a key; nil: there is none.
func (e *snapshotEdit) instance(key registry.Key) *registry.Instance {
	if now, changed := e.changed[key]; changed {
		return now
	}
	return e.from.Instance(key)
}

// snapshot ends the edit. It returns the Snapshot that it began from if all is as it was there.
func (e *snapshotEdit) snapshot() *Snapshot {
	if len(e.changed) == 0 {
		return e.from
	}
	next := *e.from
	var all, up, vips, secureVIPs []entry
	for _, key := range slices.SortedFunc(maps.Keys(e.changed), compareKeys) {
		was, now := e.from.Instance(key), e.changed[key]
		next.count(was, -1)
		next.count(now, +1)
		all = appendEntries(all, key, was, now, appOf)
		was, now = ifUp(was), ifUp(now)
		up = appendEntries(up, key, was, now, appOf)
		vips = appendEntries(vips, key, was, now, vipsOf)
		secureVIPs = appendEntries(secureVIPs, key, was, now, secureVIPsOf)
	}
	next.all = next.all.with(all)
	next.up = next.up.with(up)
	next.vips = next.vips.with(vips)
	next.secureVIPs = next.secureVIPs.with(secureVIPs)
	return &next
}

// count adds an instance, if there is one, or takes it away.
func (s *Snapshot) count(i *registry.Instance, by int) {
	if i != nil {
		s.size += by
		s.counts[i.Status] += by
	}
}

// ifUp is the instance if there is one that is UP, else nil.
func ifUp(i *registry.Instance) *registry.Instance {
	if i == nil || i.Status != registry.Up {
		return nil
	}
	return i
}

// appendEntries appends what a change does to the lists that names gives. was or now may be nil.
func appendEntries(entries []entry, key registry.Key, was, now *registry.Instance, names func(*registry.Instance) []string) []entry {
	var in []string
	if now != nil {
		in = names(now)
	}
	if was != nil {
		for _, name := range names(was) {
			if !slices.Contains(in, name) {
				entries = append(entries, entry{name: name, key: key})
			}
		}
	}
	for _, name := range in {
		entries = append(entries, entry{name: name, key: key, now: now})
	}
	return entries
}

func appOf(i *registry.Instance) []string { return []string{i.App} }

func vipsOf(i *registry.Instance) []string { return addresses(i.VIP) }

func secureVIPsOf(i *registry.Instance) []string { return addresses(i.SecureVIP) }

// addresses are the parts of a comma-separated address, in upper case, trimmed, each once; empty ones
// are none.
func addresses(list string) []string {
	var parts []string
	for part := range strings.SplitSeq(strings.ToUpper(list), ",") {
		if part = strings.TrimSpace(part); part != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return parts
}

// sameInstance says whether clients see the same in two instances: all that an instance has,
// lastDirtyTimestamp too. Metadata is a map to clients, and servers that keep it in one give it in an
// order of their own: the order is no difference.
func sameInstance(a, b *registry.Instance) bool {
	return a.Equal(b) || inOrder(a).Equal(inOrder(b))
}

// inOrder is an instance with its metadata in the order of the keys.
func inOrder(i *registry.Instance) *registry.Instance {
	sorted := *i
	for _, pairs := range []*[]registry.Pair{&sorted.Metadata, &sorted.DataCenter.Metadata} {
		*pairs = slices.SortedFunc(slices.Values(*pairs), func(a, b registry.Pair) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
		})
	}
	return &sorted
}

// listings are lists of instances by a name (of an application, a VIP address), sorted by it. They are
// immutable: what with returns shares all lists but the changed ones.
type listings []*listing

// listing is a name in upper case and the instances that have it, never none, sorted by application and
// id.
type listing struct {
	name    string
	members []*registry.Instance
}

// entry says that an instance is in a list from now on, or no more.
type entry struct {
	name string
	key  registry.Key
	now  *registry.Instance // nil: no more
}

// get returns the members of a list, whose name may be in any case.
func (g listings) get(name string) []*registry.Instance {
	var buffer [64]byte // so that no question allocates
	upper := appendUpper(buffer[:0], name)
	at, end := 0, len(g)
	for at < end {
		middle := int(uint(at+end) / 2)
		if g[middle].name < string(upper) {
			at = middle + 1
		} else {
			end = middle
		}
	}
	if at == len(g) || g[at].name != string(upper) {
		return nil
	}
	return g[at].members
}

// appendUpper is strings.ToUpper, without an allocation for what is ASCII and fits.
func appendUpper(dst []byte, name string) []byte {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z':
			dst = append(dst, c-'a'+'A')
		case c < 0x80:
			dst = append(dst, c)
		default:
			return append(dst[:0], strings.ToUpper(name)...)
		}
	}
	return dst
}

// with returns the lists after entries, of which there is one at most for a name and a key. It sorts
// them. What is not changed is copied by the pointer, so that it costs little.
func (g listings) with(entries []entry) listings {
	if len(entries) == 0 {
		return g
	}
	slices.SortFunc(entries, compareEntries)
	next := make(listings, 0, len(g)+1)
	for len(entries) > 0 {
		name := entries[0].name
		at, found := slices.BinarySearchFunc(g, name, compareListing)
		next, g = append(next, g[:at]...), g[at:]
		old := &listing{name: strings.Clone(name)} // the name must not keep the first member's memory
		if found {
			old, g = g[0], g[1:]
		}
		n := ends(entries)
		if changed := old.with(entries[:n]); len(changed.members) > 0 {
			next = append(next, changed)
		}
		entries = entries[n:]
	}
	return append(next, g...)
}

// ends is how many entries the first name has.
func ends(entries []entry) int {
	for n, e := range entries {
		if e.name != entries[0].name {
			return n
		}
	}
	return len(entries)
}

// with returns the list after entries, which are its own and sorted.
func (g *listing) with(entries []entry) *listing {
	members := g.members
	next := make([]*registry.Instance, 0, len(members)+len(entries))
	for _, e := range entries {
		at, found := slices.BinarySearchFunc(members, e.key, compareInstance)
		next, members = append(next, members[:at]...), members[at:]
		if found {
			members = members[1:]
		}
		if e.now != nil {
			next = append(next, e.now)
		}
	}
	next = append(next, members...)
	return &listing{name: g.name, members: slices.Clip(next)} // clipped: whoever appends gets a list of his own
}

func compareEntries(a, b entry) int {
	if c := strings.Compare(a.name, b.name); c != 0 {
		return c
	}
	return compareKeys(a.key, b.key)
}

func compareListing(g *listing, name string) int { return strings.Compare(g.name, name) }

func compareInstance(i *registry.Instance, key registry.Key) int { return compareKeys(i.Key(), key) }

func compareKeys(a, b registry.Key) int {
	if c := strings.Compare(a.App, b.App); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}
