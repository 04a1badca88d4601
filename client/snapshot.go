package client

import (
	"iter"

	"github.com/seed-20419f34/rollcall/client/internal/list"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Snapshot is the list of instances at one moment. It is immutable, and what it returns must not be changed. Lists
// are sorted by application and id. The zero Snapshot is the empty list.
type Snapshot struct{ list list.List }

// Len returns the number of instances, whatever their status.
func (s *Snapshot) Len() int { return s.list.Len() }

// All ranges over all instances, whatever their status.
func (s *Snapshot) All() iter.Seq[*registry.Instance] { return s.list.All() }

// Apps returns the names of the applications that have instances, in upper case.
func (s *Snapshot) Apps() []string { return s.list.Apps() }

// Instance returns one instance, whatever its status, or nil.
func (s *Snapshot) Instance(key registry.Key) *registry.Instance { return s.list.Instance(key) }

// App returns the instances of an application that are UP. The name may be in any case.
func (s *Snapshot) App(name string) []*registry.Instance { return s.list.App(name) }

// VIP returns the instances that are UP and have the given VIP address. An instance's addresses are separated by
// commas and may have blanks around them. The address may be in any case, as upstream
// (Applications.getInstancesByVirtualHostName).
func (s *Snapshot) VIP(address string) []*registry.Instance { return s.list.VIP(address) }

// SecureVIP is VIP for secure VIP addresses.
func (s *Snapshot) SecureVIP(address string) []*registry.Instance { return s.list.SecureVIP(address) }

// HashCode returns apps__hashcode of the list: for each status with instances, in lexicographic order, NAME_COUNT_.
// Source: com.netflix.discovery.shared.Applications.getReconcileHashCode.
func (s *Snapshot) HashCode() string { return s.list.HashCode() }
