// Package watch reads a cluster's stream of changes, from one server after another.
//
// It keeps nothing of what it reads: package list does. Its files:
//
//	event.go   what a stream says
//	stream.go  the stream of one server
//	follow.go  going on at another server
package watch
