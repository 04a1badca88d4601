package client

import (
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

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
