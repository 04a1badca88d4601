// Package registry is the service registry as a pure state machine: instances, leases and how
// they end, self-preservation, status overrides, quarantines, their conflict rules, the change list and
// the delta that is cut from it.
//
// State changes only through [Registry.Apply], which is told the time and never reads a clock,
// draws a random number or starts a goroutine; the same operations in the same order give the same
// bytes on every node. Readers get a [View], which is immutable and never blocks a writer.
//
// The rules are those of Netflix Eureka's registry (AbstractInstanceRegistry, Lease and the status
// override rules of eureka-core), without the defects listed in docs/reference/protocol/eureka-registry.md. How
// operations are ordered and made durable is the business of package store; how they look on the
// wire is the business of package httpd. Consul's nodes, services and checks are in package catalog.
//
// The values, each with how it is written and the pure rules about it:
//
//	instance.go     what a client says of an instance, and the key, status and ports in it
//	lease.go        the server's side of a registration: lease, override, quarantine, version
//	origin.go       whose an operation is, and when and why it was done
//	history.go      what happened to an instance: events, and the newest registrations and cancels
//	removal.go      the record of a removal, and until when the delta shows it
//	settings.go     the settings that travel in the state
//	preservation.go self-preservation: its states, and which one follows
//	expectation.go  self-preservation by upstream's formula
//	expiry.go       when a lease ends
//	peerstate.go    what is known of other servers: links, the clocks of senders, cursors
//	frozen.go       the whole state as values, for a snapshot
//	verify.go       what is verified of a frozen state
//
// The operations:
//
//	op.go           what all operations have, and their results
//	leaseops.go     operations of clients, operators and the leader on instances
//	peerops.go      operations by which other servers are known and followed, and what a snapshot for people has
//	catalogops.go   operations of Consul's catalog
//	rows.go         the table of all of them, for formats and metrics
//
// The state and the rules that change it:
//
//	tables.go       the tables of leases, by application, id, address, change and handle
//	renewals.go     the table of last renewals, which readers see live
//	catalogparts.go the parts of the catalog, and when each changed last
//	registry.go     the mutable state, and how one lease takes the place of another
//	records.go      the records of removals, and how an instance is removed
//	register.go     registrations, the rules of status, and metadata
//	renew.go        renewals
//	remove.go       cancels, evictions, and removals that other servers send
//	override.go     overrides
//	quarantine.go   quarantines
//	owner.go        to which datacenter an instance belongs
//	merge.go        replicas, which are merged with what is stored, what takes over, and what a restore brings back
//	peers.go        contacts, cursors and pauses of peers
//	selfpreservation.go transitions of self-preservation, and settings
//	servicechecks.go checks, and the status of services that follows from them
//	catalogrules.go registrations and removals of nodes, services and checks
//	transaction.go  the same in transactions, and how one that fails is taken back
//	needs.go        what a client must be allowed to do for each operation
//	ends.go         what is due at a moment, for the leader
//	freeze.go       the state as values, and back
//
// Reading:
//
//	service.go      the registry as its users see it, and its errors
//	view.go         the state at one moment
//	viewcatalog.go  nodes, services and checks in it
//	viewpeers.go    what peers are sent, and compare
//	freshness.go    which leases are renewed in time, what self-preservation makes of it, and which are evicted
//	changes.go      the change list, the delta that is cut from it, and the incarnations of the index
//	watchers.go     waiting for changes
package registry
