// Package ownroutes has the routes of our own API, /v1/rollcall/, and those of the node's health.
//
// The fields of the documents are the business of package httpd/api; package httpd/show makes most of them. Its files:
//
//	routes.go           the table of the routes
//	call.go             a call, and what this package is made of
//	state.go            the cluster, instances, events and settings
//	ready.go            the node's health
//	explain.go          what is known of an instance
//	selfpreservation.go self-preservation, released and held
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
package ownroutes
