// Package consensus is the registry with consensus (mode cp): every write is an entry of a Raft log that a majority has on disk before the caller is answered.
//
// A write goes this way:
//
//  1. Apply queues it (apply.go); what waits when one of two slots frees becomes one batch (committer.go). Renewals of
//     sessions wait for company before they are queued (gather.go).
//  2. The leader wraps its batch and those that followers sent into one log entry, stamped with the
//     lease clock (entry.go); a follower sends its batch to the leader (sending.go, calls.go, peers.go).
//  3. hashicorp/raft stores and replicates the entry; package fsm applies it on every node (machine.go).
//  4. Every caller of the batch gets its result. A caller that cannot be told what happened gets
//     registry.ErrUnknownOutcome after 4 s; a batch is sent again under the same id until then, and
//     takes effect once.
//
// Sessions, keys and locks go the same way, in the same log (coordination.go). What is to end at its time the leader
// proposes, by package expiry (leader.go). A linearizable read shares a round with all reads that wait at that moment
// (reads.go).
//
//   - raft.go: the node; open.go, run.go: its start and its end
//   - network.go, handshake.go, admission.go: the node-to-node port; peers.go, callserver.go: calls between nodes; transport.go: Raft's messages
//   - disk.go, logcache.go, logs.go: the log; loop.go, watchdog.go, pulse.go: what notices that something stands still
//   - founding.go, members.go, membership.go: how a cluster is founded and its members change; status.go: what a node says of it
//
// The package knows nothing of HTTP and nothing of how peers are told: what tells them reads Changes, and
// runs under WhileLeading (asking.go).
package consensus
