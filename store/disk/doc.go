// Package disk knows whose a data directory is, and finds damage in files of bbolt before bbolt reads them.
//
//   - identity.go: identity.json, which binds a directory to one mode, node and cluster
//   - boltcheck.go: reads a file of bbolt as a whole; values with checksums
//   - sync.go: the sync of a directory, and durable writes that take longer, for tests
package disk
