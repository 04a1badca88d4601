// Package own is Rollcall's own API, /v1/rollcall/, and the node's health: the routes, and the documents that are made
// of views, with their sentences, which the dashboard shows too.
//
// The types of the documents are in package httpd/api, because clients and peers need them without a server. Its
// files:
//
//	routes.go           the table of the routes
//	call.go             a call, and what this package is made of
//	state.go            the cluster, instances, events and settings
//	ready.go            the node's health
//	clock.go            the lease clock, times and lengths of time
//	instance.go         instances, their overrides and quarantines
//	explanation.go      what is known of an instance, as facts
//	summary.go          the same in sentences
//	held.go             sessions, locks and semaphores as documents
//	selfpreservation.go self-preservation: why it is on or off, released and held
//	acts.go             overrides and quarantines
//	prune.go            the removal of what is not passing
//	loglevel.go         the level of the node's log
//	members.go          the nodes of the cluster
//	snapshot.go         snapshots for people, saved and restored
//	peers.go            replication: messages of peers, and their state
//	watch.go            watches and long polls
//	changes.go          the changes that a watch has not read yet
//	stream.go           the events of a watch
//	read.go             reads of sessions, locks and semaphores
//	sessions.go         sessions
//	permits.go          locks, semaphores and fences
package own
