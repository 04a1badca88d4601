// Package commit is the group commit of a node: it collects what callers want committed into batches, has the leader
// propose each in an entry, and gives every caller its result.
//
//   - batch.go: a batch, its calls and their results
//   - entry.go: a log entry on its way through Raft
//   - committer.go: the queue of calls; renewals.go: renewals of instances that wait on the leader to share an entry;
//     gather.go: renewals of sessions that wait on this node, and writes that may have arrived before a pause
//   - forward.go: one attempt to commit a batch, here or at the node that leads
//   - sending.go: repeated attempts until there is a result, or the time is up
//   - slots.go: the loop that closes batches and proposes them
//
// The package does not know what operations do: package fsm decides that.
package commit
