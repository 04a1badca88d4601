// Package store is what ordering operations with and without consensus have in common: the settings of a node, and what a call is bounded by.
//
// Package consensus orders operations with Raft (mode cp), package local performs them where they arrive (mode ap). Both
// implement registry.Service; both use package expiry, which ends what has a time to end, and package disk, which knows
// whose a data directory is and what a file of bbolt must look like.
//
//   - config.go: the settings of a node in either mode
//   - tls.go: the files of mutual TLS on the node-to-node port
//   - calls.go: how large an operation may be, how long a call waits, the error of one that was done partly, and the wait for
//     changes, which ends with the node
package store
