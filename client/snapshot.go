package client

import (
	"iter"
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
