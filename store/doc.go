// Package store is where operations are ordered and made durable. Raft is the registry in CP mode:
// every write is an entry of a Raft log that a majority has on disk before the caller is answered.
//
// A write goes this way:
//
//  1. Apply queues it; what waits when one of two slots frees becomes one batch (committer.go).
//  2. The leader wraps its batch and those that followers sent into one log entry, stamped with the
//     lease clock (leader.go, clock.go); a follower sends its batch to the leader (peers.go).
//  3. hashicorp/raft stores and replicates the entry; package fsm applies it on every node.
//  4. Every caller of the batch gets its result. Whoever cannot be told what happened gets
//     registry.ErrUnknownOutcome after 4 s; a batch is sent again under the same id until then, and
//     takes effect once.
//
// A linearizable read shares a round with all reads that wait at that moment (reads.go).
//
// The package knows nothing of HTTP and nothing of peers in other datacenters.
package store
