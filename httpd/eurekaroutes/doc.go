// Package eurekaroutes has the routes of Eureka's REST protocol, and keeps ready documents per version of the registry.
//
// How the documents look is the business of package httpd/eureka. Its files:
//
//	routes.go    the table of the routes
//	call.go      a call, and what this package is made of
//	renew.go     heartbeats
//	writes.go    registrations, cancellations, and changes of status and metadata
//	batch.go     batches of other Eureka servers
//	moves.go     instances that were registered at another address
//	reads.go     lists, deltas and single instances
//	readonly.go  the read-only response cache of upstream
//	documents.go ready documents of the whole registry, and of the delta
//	chunks.go    the chunks that documents are made of
//	formats.go   the formats of the protocol, chosen by the client
//	gate.go      whether the registry can be shown
//	status.go    the node in the protocol's own form, and the overrides
package eurekaroutes
