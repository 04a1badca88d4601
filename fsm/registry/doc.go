// Package registry is the service registry as a pure state machine: instances, leases and how
// they end, self-preservation, status overrides, quarantines, their conflict rules, the change list and
// the delta that is cut from it.
//
// State changes only through [Registry.Apply], which is told the time and never reads a clock,
// draws a random number or starts a goroutine; the same operations in the same order give the same
// bytes on every node. Readers get a [View], which is immutable and never blocks a writer.
//
// The rules are Netflix Eureka's (AbstractInstanceRegistry, Lease and the status override rules of eureka-core),
// without the defects listed in docs/reference/protocol/eureka-registry.md. Package store orders operations and makes
// them durable; package httpd puts them on the wire. Consul's nodes, services and checks are in package catalog.
//
// The values, each with its encoding and the pure rules about it:
//
//	instance.go     what a client says about an instance, and its key, status and ports
//	lease.go        the server's side of a registration: lease, override, quarantine, version
//	origin.go       who sent an operation, and when and why
//	history.go      what happened to an instance: events, and the newest registrations and cancels
//	removal.go      the record of a removal, and how long the delta shows it
//	settings.go     the settings that travel in the state
//	preservation.go self-preservation: its states, and which one follows
//	expectation.go  self-preservation by upstream's formula
//	expiry.go       when a lease ends
//	peerstate.go    what is known about other servers: links, the clocks of senders, cursors
//	frozen.go       the whole state as values, for a snapshot
//	verify.go       verification of a frozen state
//
// The operations:
//
//	op.go           what all operations share, and their results
//	leaseops.go     operations of clients, operators and the leader on instances
//	peerops.go      operations that other servers send or that follow them, and the content of a snapshot for people
//	catalogops.go   operations of Consul's catalog
//	rows.go         the table of all of them, for formats and metrics
//
// The state and the rules that change it:
//
//	tables.go       the tables of leases, by application, id, address, change and handle
//	renewals.go     the table of last renewals, which readers see live
//	catalogparts.go the parts of the catalog, and when each changed last
//	registry.go     the mutable state, and how one lease replaces another
//	records.go      the records of removals, and how an instance is removed
//	register.go     registrations, the rules of status, and metadata
//	renew.go        renewals
//	remove.go       cancels, evictions, and removals that other servers send
//	override.go     overrides
//	quarantine.go   quarantines
//	owner.go        which datacenter an instance belongs to
//	merge.go        replicas: merging them into the state, takeovers, and what a restore brings back
//	peers.go        contacts, cursors and pauses of peers
//	selfpreservation.go transitions of self-preservation, and settings
//	servicechecks.go checks, and the status of services that follows from them
//	catalogrules.go registrations and removals of nodes, services and checks
//	transaction.go  the same in transactions, and how a failed one is rolled back
//	needs.go        what a client must be allowed to do for each operation
//	ends.go         what the leader has to propose because its time has come
//	freeze.go       the state as values, and back
//
// Reading:
//
//	service.go      the registry as its users see it, and its errors
//	view.go         the state at one moment
//	viewcatalog.go  nodes, services and checks in it
//	viewpeers.go    what peers are sent and what they compare
//	freshness.go    which leases are renewed in time, what self-preservation concludes, and which are evicted
//	changes.go      the change list, the delta that is cut from it, and the incarnations of the index
//	watchers.go     waiting for changes
package registry
