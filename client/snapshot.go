package client

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Snapshot is the list of instances at one moment. It is immutable, and what it returns must not be changed. Lists
// are sorted by application and id. The zero Snapshot is the empty list.
type Snapshot struct {
	size   int
	counts registry.Counts // instances by status; their sum is size
	all    listings        // by application
	// Those that are UP. Lists that every call of a service asks for are made when they change, not when they are
	// asked for.
	up         listings // by application
	vips       listings
	secureVIPs listings
}

// Len returns the number of instances, whatever their status.
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

// Instance returns one instance, whatever its status, or nil.
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

// VIP returns the instances that are UP and have the given VIP address. An instance's addresses are separated by
// commas and may have blanks around them. The address may be in any case, as upstream
// (Applications.getInstancesByVirtualHostName).
func (s *Snapshot) VIP(address string) []*registry.Instance { return s.vips.get(address) }

// SecureVIP is VIP for secure VIP addresses.
func (s *Snapshot) SecureVIP(address string) []*registry.Instance { return s.secureVIPs.get(address) }

// HashCode returns apps__hashcode of the list: for each status with instances, in lexicographic order, NAME_COUNT_.
// Source: com.netflix.discovery.shared.Applications.getReconcileHashCode.
func (s *Snapshot) HashCode() string { return s.counts.HashCode() }

// edit starts another Snapshot from this one, which stays as it is. Its cost grows with the number of changes and the
// size of the lists they are in (a pointer for each member), not with the whole.
func (s *Snapshot) edit() *edit {
	return &edit{from: s, changed: make(map[registry.Key]*registry.Instance)}
}

// edit is a Snapshot in the making. It belongs to one goroutine.
type edit struct {
	from    *Snapshot
	changed map[registry.Key]*registry.Instance // where the edit differs from from; nil for removed instances
}

// set adds or replaces an instance. changed is false if an equal one (sameInstance) was there.
func (e *edit) set(i *registry.Instance) (changed bool) {
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

// remove removes an instance, if the list has it.
func (e *edit) remove(key registry.Key) (changed bool) {
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

// instance returns the current instance of a key, or nil.
func (e *edit) instance(key registry.Key) *registry.Instance {
	if now, changed := e.changed[key]; changed {
		return now
	}
	return e.from.Instance(key)
}

// list returns the edited Snapshot, or the one that the edit started from if nothing differs.
func (e *edit) list() *Snapshot {
	if len(e.changed) == 0 {
		return e.from
	}
	next := *e.from
	var all, up, vips, secureVIPs []move
	for _, key := range slices.SortedFunc(maps.Keys(e.changed), registry.Key.Compare) {
		was, now := e.from.Instance(key), e.changed[key]
		next.count(was, -1)
		next.count(now, +1)
		all = appendMoves(all, key, was, now, appOf)
		was, now = ifUp(was), ifUp(now)
		up = appendMoves(up, key, was, now, appOf)
		vips = appendMoves(vips, key, was, now, vipsOf)
		secureVIPs = appendMoves(secureVIPs, key, was, now, secureVIPsOf)
	}
	next.all = next.all.with(all)
	next.up = next.up.with(up)
	next.vips = next.vips.with(vips)
	next.secureVIPs = next.secureVIPs.with(secureVIPs)
	return &next
}

// count adds by to the count of an instance's status, if there is an instance.
func (s *Snapshot) count(i *registry.Instance, by int) {
	if i != nil {
		s.size += by
		s.counts[i.Status] += by
	}
}

// ifUp returns the instance if there is one and it is UP, otherwise nil.
func ifUp(i *registry.Instance) *registry.Instance {
	if i == nil || i.Status != registry.Up {
		return nil
	}
	return i
}

// appendMoves appends the effect of a change on the lists that names returns. was or now may be nil.
func appendMoves(moves []move, key registry.Key, was, now *registry.Instance, names func(*registry.Instance) []string) []move {
	var in []string
	if now != nil {
		in = names(now)
	}
	if was != nil {
		for _, name := range names(was) {
			if !slices.Contains(in, name) {
				moves = append(moves, move{name: name, key: key})
			}
		}
	}
	for _, name := range in {
		moves = append(moves, move{name: name, key: key, now: now})
	}
	return moves
}

func appOf(i *registry.Instance) []string { return []string{i.App} }

func vipsOf(i *registry.Instance) []string { return addresses(i.VIP) }

func secureVIPsOf(i *registry.Instance) []string { return addresses(i.SecureVIP) }

// addresses returns the parts of a comma-separated address, in upper case, trimmed, each once, without empty ones.
func addresses(list string) []string {
	var parts []string
	for part := range strings.SplitSeq(strings.ToUpper(list), ",") {
		if part = strings.TrimSpace(part); part != "" && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return parts
}

// sameInstance reports whether clients see the same in two instances: everything that an instance has, including
// lastDirtyTimestamp. Metadata is a map to clients, and servers that keep it in one return it in an order of their
// own, so the order does not count.
func sameInstance(a, b *registry.Instance) bool {
	return a.Equal(b) || inOrder(a).Equal(inOrder(b))
}

// inOrder returns an instance with its metadata sorted by key.
func inOrder(i *registry.Instance) *registry.Instance {
	sorted := *i
	for _, pairs := range []*[]registry.Pair{&sorted.Metadata, &sorted.DataCenter.Metadata} {
		*pairs = slices.SortedFunc(slices.Values(*pairs), func(a, b registry.Pair) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
		})
	}
	return &sorted
}

// listings are lists of instances by a name (of an application, a VIP address), sorted by it. They are immutable:
// what with returns shares all lists but the changed ones.
type listings []*listing

// listing is a name in upper case and the instances that have it, at least one, sorted by application and id.
type listing struct {
	name    string
	members []*registry.Instance
}

// move says that an instance is in a list from now on, or no longer.
type move struct {
	name string
	key  registry.Key
	now  *registry.Instance // nil if it no longer is
}

// get returns the members of a list, whose name may be in any case.
func (g listings) get(name string) []*registry.Instance {
	var buffer [64]byte // so that no lookup allocates
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

// with returns the lists after moves, at most one per name and key, which it sorts. Unchanged lists are shared by
// pointer, which is cheap.
func (g listings) with(moves []move) listings {
	if len(moves) == 0 {
		return g
	}
	slices.SortFunc(moves, func(a, b move) int { return cmp.Or(strings.Compare(a.name, b.name), a.key.Compare(b.key)) })
	next := make(listings, 0, len(g)+1)
	for len(moves) > 0 {
		name := moves[0].name
		at, found := slices.BinarySearchFunc(g, name, func(l *listing, name string) int {
			return strings.Compare(l.name, name)
		})
		next, g = append(next, g[:at]...), g[at:]
		old := &listing{name: strings.Clone(name)} // the name must not keep the first member's memory
		if found {
			old, g = g[0], g[1:]
		}
		n := slices.IndexFunc(moves, func(m move) bool { return m.name != name })
		if n < 0 {
			n = len(moves)
		}
		if changed := old.with(moves[:n]); len(changed.members) > 0 {
			next = append(next, changed)
		}
		moves = moves[n:]
	}
	return append(next, g...)
}

// with returns the list after moves, which all have its name and are sorted.
func (g *listing) with(moves []move) *listing {
	members := g.members
	next := make([]*registry.Instance, 0, len(members)+len(moves))
	for _, m := range moves {
		at, found := slices.BinarySearchFunc(members, m.key, func(i *registry.Instance, key registry.Key) int {
			return i.Key().Compare(key)
		})
		next, members = append(next, members[:at]...), members[at:]
		if found {
			members = members[1:]
		}
		if m.now != nil {
			next = append(next, m.now)
		}
	}
	next = append(next, members...)
	return &listing{name: g.name, members: slices.Clip(next)} // clipped, so that an append makes another list
}
