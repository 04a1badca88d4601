// Package consensus is the registry with consensus (mode cp): every write is an entry of a Raft log that a majority
// has on disk before the caller gets a result.
//
// The path of a write:
//
//  1. Apply and Coordination.Apply hand it to the committer (apply.go, coordination.go, committer.go), which
//     queues it. The calls that are queued when one of two slots frees become one batch.
//  2. The leader wraps its own batch and those that followers sent into one log entry, stamped with the lease clock.
//     A follower sends its batch to the leader, over the node-to-node port (package port).
//  3. hashicorp/raft, over package raftio, stores and replicates the entry; package fsm applies it on every node
//     (machine.go).
//  4. Every caller of the batch gets its result. A caller whose result is not known after 4 s gets
//     registry.ErrUnknownOutcome. Until then a batch is sent again under the same id, and takes effect once.
//
// Sessions, keys and locks go the same way, in the same log. The leader ends whatever expires, by package expiry
// (leader.go). A linearizable read shares a round with all reads that wait at that moment (reader.go).
//
//   - raft.go: the node; open.go: how its parts are made and joined; run.go: what it runs, its readiness and its end
//   - apply.go: the registry's operations; coordination.go: those of sessions, keys and locks; asking.go: questions
//     to the leader
//   - committer.go: the queue of calls, and the loop that closes batches and proposes them; batch.go: a batch, its
//     calls and their results; entry.go: a log entry on its way through Raft
//   - renewals.go: renewals that wait, of instances on the leader, of sessions on this node
//   - forward.go: attempts to commit a batch, here or at the node that leads, until there is a result or the time is up
//   - reader.go: rounds of linearizable reads, at the leader and at its followers, which prove how far a read must have
//     applied the log; age.go: how old this node's state is by these proofs, and what a leader says of itself
//   - machine.go: connects Raft's entries and snapshots to the state machine; logs.go: bounds the log, and reports
//     damaged entries
//   - leader.go: what the established leader does; settingswatch.go: whether its settings match this node's
//   - status.go: what a node says of itself and its cluster; metrics.go: its figures
//
// Beside it, each with a struct of what it needs from the node: package leadership knows which node leads, package
// membership founds and joins clusters and changes their members.
//
// The package knows nothing of HTTP or of how peers are told: replication reads Changes, and runs under WhileLeading.
package consensus
