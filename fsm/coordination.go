package fsm

import (
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// KV is the state of coordination after the newest applied entry.
func (m *Machine) KV() *kv.View { return m.published.Load().kv }

// KVDue is kv.State.Due.
func (m *Machine) KVDue(now int64, limit int) []kv.Op {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kv.Due(now, limit)
}

// NeedsClock says that something in the state waits for a time of the lease clock: a lease, a session,
// a lock-delay, a check that expects heartbeats or is to be reaped.
func (m *Machine) NeedsClock() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.registry.NeedsClock() || m.kv.NeedsClock()
}

// at is the moment of an operation that would take the next index. Its time is the registry's, which
// does not go back and believes no stamp that is far ahead.
func (m *Machine) at(term uint64) kv.At {
	clock := m.registry.Clock()
	return kv.At{Index: m.registry.Next(), Lease: clock.Lease, Wall: clock.Wall, Term: term}
}

// coordinate performs an operation of coordination, sent by a principal. read is what the operations before it in its batch
// have read.
func (m *Machine) coordinate(term uint64, read int, by string, op kv.Op) kv.Result {
	at := m.at(term)
	at.Read, at.By = read, by
	result := m.kv.Apply(at, op)
	if result.Index >= m.registry.Next() { // else a change of the registry in a transaction has taken it
		m.registry.ReserveIndex()
	}
	return result
}

// lose ends the sessions that depend on what an operation of the registry made critical or took away,
// under the index of that operation (0: it has none; then they take one).
func (m *Machine) lose(term uint64, taken registry.Index) {
	lost := m.registry.Lost()
	if len(lost) == 0 {
		return
	}
	at := m.at(term)
	if taken != 0 {
		at.Index = taken
	}
	if m.endSessions(at, lost) && taken == 0 {
		m.registry.ReserveIndex()
	}
}

// endSessions ends the sessions that depend on checks and nodes, and says whether any did.
func (m *Machine) endSessions(at kv.At, lost []catalog.CheckRef) bool {
	var checks []catalog.CheckRef
	ended := false
	for _, l := range lost {
		if l.ID != "" {
			checks = append(checks, l)
			continue
		}
		ended = m.kv.LoseNode(at, l.Node) || ended
	}
	return m.kv.Lose(at, checks) || ended
}
