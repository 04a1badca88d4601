package fsm

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Skip makes the machine pass over log entries, given by index ascending. Operators have decided so on every node of
// the cluster, because the entries panic (ADR 32). Their batches are forgotten, so a copy in another entry takes
// effect.
func (m *Machine) Skip(entries []uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skipped = slices.Clone(entries)
}

// skip refuses the batches of a skipped entry.
func (m *Machine) skip(done Applied, e entry) Applied {
	for _, b := range e.batches {
		id := b.id
		id.Bound = Bound{}
		done.Batches = append(done.Batches, BatchResult{ID: id, Refused: true})
	}
	done.Clock = m.registry.Clock()
	return done
}

// PanicError says that an entry panicked, and why.
type PanicError struct {
	Entry     uint64
	Operation string // in the words of Describe, with its sender; empty if no operation panicked
	Cause     any
	Stack     []byte
}

// Error implements error.
func (e *PanicError) Error() string {
	text := fmt.Sprintf("log entry %d panicked (%v)", e.Entry, e.Cause)
	if e.Operation != "" {
		text += " over " + e.Operation
	}
	return text
}

// panicked describes what was being performed, while a panic is recovered from.
func (m *Machine) panicked(cause any) *PanicError {
	e := &PanicError{Entry: m.doing.entry, Cause: cause, Stack: debug.Stack()}
	if b := m.doing.batch; b != nil && m.doing.item < len(b.items) {
		it := b.items[m.doing.item]
		sender := cmp.Or(it.By.Name, "a client that was not asked who it is, or by this cluster itself")
		switch it.Origin.Kind {
		case registry.RemoteDC:
			sender = "peer " + it.Origin.DC
		case registry.LocalPeer:
			sender = "a node of this datacenter"
		}
		e.Operation = fmt.Sprintf("%s (operation %d of %d of batch %d of node %s, sent by %s)",
			Describe(it), m.doing.item+1, len(b.items), b.id.Seq, b.id.Node, sender)
	}
	return e
}

// DescribeWrite names the operations of a log entry, or returns why the entry cannot be skipped.
func DescribeWrite(data []byte) ([]string, error) {
	e, err := parseEntry(data)
	switch {
	case err != nil:
		return nil, err
	case e.establish != nil:
		return nil, fmt.Errorf("it begins the leadership of %s", e.establish.Node)
	case e.raise != 0:
		return nil, fmt.Errorf("it raises the level of the formats to %d", e.raise)
	}
	operations := []string{} // JSON shows an empty list, not null
	for _, b := range e.batches {
		for _, it := range b.items {
			operations = append(operations, strings.TrimSpace(Describe(it)))
		}
	}
	return operations, nil
}
