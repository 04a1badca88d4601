// Package list keeps a list of instances up to date, by a watch or by fetches, and reads streams of changes.
//
// It calls no function of the client's user: the client does, when a list is published. Its files:
//
//	list.go     a list at one moment, and how the next one is made from it
//	guard.go    refuses full responses that lack too many instances
//	file.go     the last list on disk
//	keeper.go   a Keeper: its configuration, its state and its metrics
//	refresh.go  the steps of a refresh: when everything is fetched, and what is published
//	fetch.go    full responses and deltas
//	follow.go   a list by a watch
//	event.go    what a stream of changes says
//	stream.go   the stream of one server
//	follower.go a stream that goes on at another server
package list
