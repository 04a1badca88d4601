// Package raftio is what hashicorp/raft runs on: the log on disk with its newest entries in memory, the transport,
// and the watches that notice when one of them hangs.
//
// Each part fixes something that the library leaves to its user, or does in a way that a registry cannot bear; its
// comment says what.
//
//   - disk.go: the log and Raft's votes, with checksums, fail-stop: votes in bbolt, entries there or in segments
//     (wal.go; walcheck.go examines them); convert.go: from one to the other; logcache.go: the newest entries in memory
//   - snapshots.go: makes snapshots durable, and explains unfinished or damaged ones to an operator
//   - transport.go: Raft's messages over the node-to-node port (package port)
//   - loop.go: the watch over Raft's main loop, and the watchdog that it shares with the disk
//   - library.go: the library's logger, futures and start
//
// The package does not know what entries contain.
package raftio
