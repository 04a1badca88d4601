package fsm

import (
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// KV returns the state of coordination after the newest applied entry.
func (m *Machine) KV() *kv.View { return m.published.Load().kv }

// KVDue calls kv.State.Due.
func (m *Machine) KVDue(now int64, limit int) []kv.Op {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kv.Due(now, limit)
}

// NeedsClock reports whether anything in the state waits for a time of the lease clock: a lease, a session, a
// lock-delay, or a check that expects heartbeats or will be reaped.
func (m *Machine) NeedsClock() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.registry.NeedsClock() || m.kv.NeedsClock()
}

// at returns the moment of an operation that would take the next index. Its time is the registry's, which does not go
// back and ignores stamps that are far ahead.
func (m *Machine) at(term uint64) kv.At {
	clock := m.registry.Clock()
	return kv.At{Index: m.registry.Next(), Lease: clock.Lease, Wall: clock.Wall, Term: term}
}

// coordinate performs an operation of coordination, sent by a principal. read is what the operations before it in its
// batch have read.
func (m *Machine) coordinate(term uint64, read int, by string, op kv.Op) kv.Result {
	at := m.at(term)
	at.Read, at.By = read, by
	result := m.kv.Apply(at, op)
	if result.Index >= m.registry.Next() { // else a change of the registry in a transaction has taken it
		m.registry.ReserveIndex()
	}
	return result
}

// lose ends the sessions that depend on what an operation of the registry removed or made critical, under the index
// of that operation (if it took none, taken is 0, and they take one).
func (m *Machine) lose(term uint64, taken registry.Index) {
	lost := m.registry.Lost()
	if len(lost) == 0 {
		return
	}
	at := m.at(term)
	if taken != 0 {
		at.Index = taken
	}
	var checks []catalog.CheckRef
	ended := false
	for _, l := range lost {
		if l.ID != "" {
			checks = append(checks, l)
			continue
		}
		ended = m.kv.LoseNode(at, l.Node) || ended
	}
	if ended = m.kv.Lose(at, checks) || ended; ended && taken == 0 {
		m.registry.ReserveIndex()
	}
}
