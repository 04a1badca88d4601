// Package fsm is the deterministic state machine behind the Raft log: the binary formats of log
// entries and snapshots, the memory of answered batches, and Apply. The registry's rules are in
// package fsm/registry; what orders the entries is package store.
//
// The formats are described in docs/formats.
package fsm
