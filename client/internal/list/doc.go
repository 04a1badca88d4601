// Package list keeps a list of instances up to date, by a watch or by fetches.
//
// It calls no function of the client's user: the client does, when a list is published. Its files:
//
//	list.go     a list at one moment, and how the next is made of it
//	guard.go    the refusal of full responses that lack too many instances
//	file.go     the last list on disk
//	keeper.go   a Keeper: its configuration, its state and its metrics
//	refresh.go  the steps of a refresh: when everything is fetched, and what is published
//	fetch.go    full responses and deltas
//	follow.go   the stream of a watch
package list
