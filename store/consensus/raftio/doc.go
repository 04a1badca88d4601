// Package raftio is what hashicorp/raft stands on: the log on disk with its newest entries in memory, the transport, and what notices that one of them stands still.
//
// Each part mends something that the library leaves to its user, or does in a way that a registry cannot bear; its comment
// says what.
//
//   - disk.go: the log and Raft's votes, with checksums, fail-stop: votes in bbolt, entries there or in segments (wal.go,
//     which are examined by walcheck.go); convert.go: from one to the other; logcache.go: the newest entries in memory
//   - snapshots.go: what an unfinished or damaged snapshot is to an operator
//   - transport.go: Raft's messages over the node-to-node port (package port)
//   - loop.go: the watch over Raft's main loop, and the watchdog that the disk has too
//   - library.go: the library's logger, futures and start
//
// The package knows nothing of what entries contain.
package raftio
