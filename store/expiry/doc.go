// Package expiry ends what has a time to end, by the lease clock: leases, overrides, quarantines and checks, sessions and lock-delays.
//
// It serves a leader (package store) as well as a node without consensus. What it needs of the store it gets as
// functions; it proposes operations, and the state machine decides.
//
//   - clock.go: the lease clock, and rows of stalls
//   - evictor.go: ends leases, overrides, quarantines and checks, and leads self-preservation from state to state
//   - coordinator.go: ends sessions and lock-delays
//   - metrics.go: the counters of both, and what a scrape shows of self-preservation
package expiry
