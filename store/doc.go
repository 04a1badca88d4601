// Package store has what ordering operations with and without consensus share: the settings of a node, the bounds of a
// call, and how code that only measures is kept from ending the node.
//
// Package consensus orders operations with Raft (mode cp), package local performs them where they arrive (mode ap).
// Both implement registry.Service. Both use package expiry, which ends whatever expires, and package disk, which
// knows who owns a data directory and what a file of bbolt must look like.
//
//   - config.go: the settings of a node in either mode
//   - tls.go: the files of mutual TLS on the node-to-node port
//   - panics.go: keeps code that only measures a node from bringing it down; metrics.go: the metrics of both modes
//   - calls.go: how large an operation may be, how long a call waits, the error of a call that was done partly, and
//     the wait for changes, which ends with the node
package store
