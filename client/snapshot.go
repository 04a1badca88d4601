package client

import (
	"iter"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Snapshot is the list of instances at one moment. It is immutable, and what it returns must not be
// changed. Lists are sorted by application and id.
type Snapshot struct{}

// Len is the number of instances, whatever their status.
func (s *Snapshot) Len() int { panic("not written") }

// All ranges over all instances, whatever their status.
func (s *Snapshot) All() iter.Seq[*registry.Instance] { panic("not written") }

// Apps returns the names of the applications that have instances, in upper case.
func (s *Snapshot) Apps() []string { panic("not written") }

// Instance returns one instance, whatever its status; nil if there is none.
func (s *Snapshot) Instance(key registry.Key) *registry.Instance { panic("not written") }

// App returns the instances of an application that are UP. The name may be in any case.
func (s *Snapshot) App(name string) []*registry.Instance { panic("not written") }

// VIP returns the instances that are UP and have a VIP address among theirs. It may be in any case, as
// upstream (Applications.getInstancesByVirtualHostName).
func (s *Snapshot) VIP(address string) []*registry.Instance { panic("not written") }

// SecureVIP is VIP for secure VIP addresses.
func (s *Snapshot) SecureVIP(address string) []*registry.Instance { panic("not written") }

// HashCode is apps__hashcode of the list: for each status with instances, in lexicographic order,
// NAME_COUNT_. Source: com.netflix.discovery.shared.Applications.getReconcileHashCode.
func (s *Snapshot) HashCode() string { panic("not written") }

// edit begins another Snapshot from this one, which stays as it is. It costs what is changed, not what
// there is.
func (s *Snapshot) edit() *snapshotEdit { panic("not written") }

// snapshotEdit is a Snapshot in the making. It belongs to one goroutine.
type snapshotEdit struct{}

// put adds or replaces an instance; changed is false if it was there, equal.
func (e *snapshotEdit) put(i *registry.Instance) (changed bool) { panic("not written") }

// remove removes an instance, if it is there.
func (e *snapshotEdit) remove(key registry.Key) (changed bool) { panic("not written") }

// snapshot ends the edit. It returns the Snapshot that it began from if nothing was changed.
func (e *snapshotEdit) snapshot() *Snapshot { panic("not written") }
