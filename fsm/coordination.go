package fsm

import "github.com/seed-20419f34/rollcall/fsm/kv"

// KV is the state of coordination after the newest applied entry.
func (m *Machine) KV() *kv.View { panic("not written") }

// KVDue is kv.State.Due.
func (m *Machine) KVDue(now int64, limit int) []kv.Op { panic("not written") }

// NeedsClock says that something in the state waits for a time of the lease clock: a lease, a session,
// a lock-delay, a check that expects heartbeats or is to be reaped.
func (m *Machine) NeedsClock() bool { panic("not written") }
