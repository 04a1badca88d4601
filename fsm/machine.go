package fsm

import (
	"io"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Machine is the replicated state: the registry, the memory of answered batches, and the index of
// the newest applied entry. Its methods are safe for concurrent use: Apply, Restore and Snapshot are
// called by Raft's one goroutine, Expired by the evictor, View by everybody (and never blocks).
type Machine struct{}

// NewMachine returns an empty state.
func NewMachine() *Machine { panic("not written") }

// Applied is what an entry brought about.
type Applied struct {
	Batches []BatchResult  // Write entries: one per batch, in order
	Epoch   registry.Epoch // Establish entries
	Clock   registry.Stamp // the lease clock after the entry; the new leader goes on from there
}

// Apply performs one log entry. An error means that this node cannot go on (an entry that it cannot
// decode, of a newer version, or out of order): every replica must do the same with an entry, so the
// caller stops the node. The state is unchanged then.
func (m *Machine) Apply(index, term uint64, entry []byte) (Applied, error) { panic("not written") }

// Index is the Raft index of the newest applied entry that View contains.
func (m *Machine) Index() uint64 { panic("not written") }

// View is the registry after the newest applied entry.
func (m *Machine) View() *registry.View { panic("not written") }

// Expired is Registry.Expired.
func (m *Machine) Expired(now int64, limit int) []registry.EvictItem { panic("not written") }

// Snapshot freezes the state in milliseconds; the frozen copy is written while Apply goes on.
func (m *Machine) Snapshot() *Snapshot { panic("not written") }

// Snapshot is a frozen state.
type Snapshot struct{}

// WriteTo writes version, counts, state and checksum (docs/formats/snapshot.md). Equal states give
// equal bytes.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) { panic("not written") }

// Restore reads a snapshot completely, verifies it, and only then replaces the state in one step.
func (m *Machine) Restore(r io.Reader) error { panic("not written") }
