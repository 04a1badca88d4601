// Package local is the registry without consensus (mode ap): every node has its own, and performs operations as they
// arrive.
//
//  1. Apply performs them under one lock, stamped with this node's lease clock, and publishes a new view
//     unless they were renewals (perform.go).
//  2. What changed is written to one bbolt file, a transaction at a time: in the background, or before the reply
//     (flush.go, writer.go). After a crash the node has everything up to the last complete transaction.
//  3. A start loads the file (disk.go), admits operations, takes over what the other nodes have, and only then is
//     ready and ends leases (local.go), by the same evictor as a leader (package expiry).
//
// The package knows nothing of HTTP or of how peers are told.
package local
