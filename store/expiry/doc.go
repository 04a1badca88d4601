// Package expiry ends whatever expires, by the lease clock: leases, overrides, quarantines and checks, sessions and
// lock delays.
//
// It serves a leader (package consensus) as well as a node without consensus. It gets what it needs from the store as
// functions. It proposes operations, and the state machine decides.
//
//   - clock.go: the lease clock, and rows of stalls
//   - evictor.go: ends leases, overrides, quarantines and checks, and moves self-preservation from state to state
//   - coordinator.go: ends sessions and lock delays
//   - metrics.go: the counters of both, and what a scrape shows of self-preservation
package expiry
