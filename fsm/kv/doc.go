// Package kv holds what programs coordinate by: sessions, keys, locks and semaphores, as Consul's clients know them,
// as pure state. Operations are applied one after the other with the time and the index of their log entry; readers
// get immutable views. The package knows no network, no disk, no clock and no goroutines: every replica that applies
// the same operations has the same state.
//
// The rules follow Consul's HTTP API (docs/reference/protocol/coordination.md), with three differences: a
// lock-delay is state and survives failover; so is the time of a session's last renewal, which makes its end exact;
// and each acquisition has a number that only grows and tells the present holder from the one before.
//
// Its files, from the bottom up:
//
//	fence.go        indexes and epochs; what can be held, and the token of an acquisition
//	pair.go         a key with its value
//	deletions.go    the records of deletions
//	delays.go       the lock-delays of keys
//	session.go      a session
//	permits.go      a lock or semaphore as readers see it
//	keytable.go     the keys, their holders, deletions and lock-delays
//	sessiontable.go the sessions by id, by check and by their end
//	permittable.go  the locks and semaphores, and their queues
//	results.go      results of operations, and those kept for repetitions
//	state.go        the state: applies operations, and shares its tables with views
//	keyops.go       operations on keys
//	txn.go          transactions: of keys, sessions, and nodes, services and checks
//	turn.go         what one operation does to one lock or semaphore
//	permitops.go    operations on locks and semaphores, and the end of a lock-delay
//	sessions.go     operations on sessions, and how sessions end
//	due.go          what the leader has to propose because its time has passed
//	txnrun.go       how a transaction is performed, or rolled back
//	once.go         operations that take effect once under a key
//	restoreops.go   operations of a restore; restore.go: what they do; image.go: the content of a snapshot for people
//	rows.go         the table of all operations
//	frozen.go       the state in a snapshot; verify.go, thaw.go: how it is checked and read back
//	view.go         what readers see
//	watchers.go     waiting for changes
package kv
