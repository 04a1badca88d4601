// Package disk knows whose a data directory is, and finds damage in files of bbolt before bbolt reads them.
//
//   - identity.go: identity.json, which binds a directory to one mode, node and cluster
//   - boltcheck.go: reads a file of bbolt as a whole; values with checksums
//   - delay.go: durable writes that take longer, for tests; the sync of a directory
package disk
