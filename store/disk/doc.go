// Package disk knows who owns a data directory, and finds damage in files of bbolt before bbolt reads them.
//
//   - identity.go: identity.json, which binds a directory to one mode, node and cluster
//   - boltcheck.go: reads a whole file of bbolt; values with checksums
//   - sync.go: syncs directories; durable writes that can be slowed down, for tests
package disk
