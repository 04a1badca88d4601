// Package kv holds what programs coordinate by: sessions, keys, locks and semaphores, as Consul's
// clients know them, as pure state. Operations go in one after the other with the time and the index
// of their log entry; readers get immutable views. It knows no network, no disk, no clock and no
// goroutine: every replica that applies the same operations has the same state.
//
// The rules are those of Consul's HTTP API (docs/protocol/coordination.md), with three differences: a
// lock-delay is state and survives failover, so is the time of a session's last renewal, from which its
// end is exact, and each acquisition has a number that only grows, by which the holder of before is told from
// the holder of now.
package kv
