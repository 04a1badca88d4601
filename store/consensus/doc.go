// Package consensus is the registry with consensus (mode cp): every write is an entry of a Raft log that a majority has on disk before the caller gets a result.
//
// A write goes this way:
//
//  1. Apply and Coordination.Apply hand it to the committer (apply.go, coordination.go; package commit), which queues it.
//     The calls that are queued when one of two slots frees become one batch.
//  2. The leader wraps its batch and those that followers sent into one log entry, stamped with the lease clock. A
//     follower sends its batch to the leader, over the node-to-node port (package port).
//  3. hashicorp/raft, over package raftio, stores and replicates the entry; package fsm applies it on every node (machine.go).
//  4. Every caller of the batch gets its result. A caller that cannot be told what happened gets
//     registry.ErrUnknownOutcome after 4 s; a batch is sent again under the same id until then, and
//     takes effect once.
//
// Sessions, keys and locks go the same way, in the same log. What is to end at its time the leader proposes, by package
// expiry (leader.go). A linearizable read shares a round with all reads that wait at that moment (package reads).
//
//   - raft.go: the node; open.go: how its parts are made and joined; run.go: what it runs, its readiness and its end
//   - apply.go: the registry's operations; coordination.go: those of sessions, keys and locks; asking.go: questions to the leader
//   - machine.go: Raft's entries and snapshots to the state machine; logs.go: the bound of the log, and what is said of damaged entries
//   - leader.go: what the established leader does; settingswatch.go: whether its settings are this node's
//   - status.go: what a node says of itself and its cluster; metrics.go: its figures
//
// Beside it, each with what it needs of the node as a struct: package leadership knows which node leads, package membership founds
// and joins clusters and changes their members.
//
// The package knows nothing of HTTP and nothing of how peers are told: what tells them reads Changes, and
// runs under WhileLeading.
package consensus
