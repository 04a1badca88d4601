// Package local is the registry without consensus (mode ap): every node has its own, and performs operations as they arrive.
//
//  1. Apply performs them under one lock, stamped with this node's lease clock, and publishes a new view
//     unless they were renewals (perform.go).
//  2. What changed is written to one bbolt file, a transaction at a time: behind, or before the answer
//     (flush.go, writer.go). After a crash the node has what the last transaction made whole.
//  3. A start loads the file (disk.go), lets operations in, takes over what the other nodes have, and
//     only then is ready and ends leases (local.go), by the same evictor as a leader (package expiry).
//
// The package knows nothing of HTTP and nothing of how peers are told.
package local
