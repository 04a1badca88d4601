// Package store is where operations are ordered and made durable. Raft is the registry in CP mode:
// every write is an entry of a Raft log that a majority has on disk before the caller is answered.
//
// A write goes this way:
//
//  1. Apply queues it; what waits when one of two slots frees becomes one batch (committer.go).
//  2. The leader wraps its batch and those that followers sent into one log entry, stamped with the
//     lease clock (leader.go, expiry/clock.go); a follower sends its batch to the leader (peers.go).
//  3. hashicorp/raft stores and replicates the entry; package fsm applies it on every node.
//  4. Every caller of the batch gets its result. Whoever cannot be told what happened gets
//     registry.ErrUnknownOutcome after 4 s; a batch is sent again under the same id until then, and
//     takes effect once.
//
// Sessions, keys and locks go the same way, in the same log (coordination.go); renewals of sessions wait for
// company before they are queued (gather.go). What is to end at its time the leader proposes: leases and
// checks in expiry/evictor.go, sessions and lock-delays in expiry/coordinator.go.
//
// A linearizable read shares a round with all reads that wait at that moment (reads.go).
//
// Local is the registry in AP mode: every node has its own, and performs operations as they arrive.
//
//  1. Apply performs them under one lock, stamped with this node's lease clock, and publishes a new view
//     unless they were renewals (local.go).
//  2. What changed is written to one bbolt file, a transaction at a time: behind, or before the answer
//     (local_writer.go). After a crash the node has what the last transaction made whole.
//  3. A start loads the file (local_disk.go), lets operations in, takes over what the other nodes have, and
//     only then is ready and ends leases (local.go), by the same evictor as a leader (expiry/evictor.go).
//
// The package knows nothing of HTTP and nothing of how peers are told: whoever tells them reads Changes, and
// runs under WhileLeading in CP mode (calls.go).
package store
