// Package show makes what people and programs read of a node's state out of views: the documents of our own API (package
// api) and the sentences in them, which the dashboard shows too.
//
// It asks nothing of the node and keeps nothing. Its files:
//
//	clock.go            the lease clock, times and lengths of time
//	instance.go         instances, their overrides and quarantines
//	explanation.go      what is known of an instance, as facts
//	summary.go          the same in sentences
//	selfpreservation.go self-preservation, and why it is on or off
//	held.go             sessions, locks and semaphores
//	process.go          the process itself
package show
