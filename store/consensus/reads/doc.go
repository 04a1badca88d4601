// Package reads proves how far a read must have applied the log, and knows how old a node's state can be.
//
//   - reader.go: rounds of linearizable reads, at the leader and at its followers
//   - rounds.go: how all who wait share one attempt
//   - freshness.go: proofs of what this node has applied; age.go: how old its state is by them, and what a leader
//     says of itself
//
// The package reads nothing itself: its caller takes the view when the node has caught up.
package reads
