// Package commit is the group commit of a node: it makes batches of what callers want committed, has the leader propose each in an entry, and gives every caller its result.
//
//   - batch.go: a batch, its calls and their results
//   - entry.go: a log entry on its way through Raft
//   - committer.go: the queue of calls; company.go: renewals of instances that wait for company on the leader; gather.go: others that wait for it here, and writes that may have come before a pause
//   - forward.go: one attempt to commit a batch, here or at the node that leads
//   - sending.go: attempts until there is a result, or the time is up
//   - slots.go: the loop that closes batches, and proposes them
//
// The package knows nothing of what operations do: package fsm decides that.
package commit
