// Package link has what connections to peers of every kind share: what a peer is, what this side of the connection
// is, the tasks that are sent, and what a failed call means for them. It talks to no peer itself: the links are in
// packages rollcallpeer and replication.
//
//	link.go the interface of links, and what they need
//	task.go tasks, and how two of one instance merge
//	peer.go a peer as it is configured
//	side.go this node, its datacenter and its peers
//	call.go the HTTP client, and what errors of calls mean
//	apply.go operations that peers sent
//	refusals.go items that are refused, here or by a peer
package link

import (
	"context"
	"errors"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/batcher"
)

// ErrNoDigests means that the peer is a Eureka server, which cannot be compared with.
var ErrNoDigests = errors.New("not offered for Eureka servers")

// Link transmits to one peer.
type Link interface {
	batcher.Processor[Task]
	// Run does what a link needs beside tasks, until ctx ends: it keeps the peer informed that the link is alive.
	Run(ctx context.Context) error
	// Compare compares with the peer. With repair it also returns the tasks that make the peer equal. ErrNoDigests
	// means that it cannot compare; with repair the tasks are then everything.
	Compare(ctx context.Context, repair bool) (api.PeerDiff, []Task, error)
	// URL returns the one in use, without user info.
	URL() string
}

// Actor is a link that also sends operators' acts that are not in the change list. Links to nodes of this datacenter
// are Actors.
type Actor interface {
	Act(ctx context.Context, op registry.SelfPreservation) batcher.Result
}

// Rollcall is a link to a Rollcall server, which reports about itself what this side compares.
type Rollcall interface {
	// Levels returns which levels the server reads and writes, according to its last response, and when that came;
	// zero if none came yet.
	Levels() (codec.Reads, time.Time)
	// AuthFileDiffers reports whether a node of this datacenter has a different file of roles and tokens from this
	// node's; ok is false while that is not known.
	AuthFileDiffers() (differs, ok bool)
	// AuthMode returns the mode of access control in another datacenter, in a word, or "" while it is not known.
	AuthMode() string
}

// Env is what a link needs.
type Env struct {
	Side
	Peer PeerConfig
	// Submit queues a task, such as the Register that a reply of 404 asks for.
	Submit func(Task)
	// Sent counts a fact that the peer accepted ("register", "heartbeat", "cancel", "override").
	Sent func(fact string)
	// Succeeded and Failed record the end of a call, for the status; the error of Failed is a sentence.
	Succeeded func()
	Failed    func(err error)
	// Refused records why the peer refuses an item of an instance; an empty why records that the peer has accepted
	// one. GaveUp counts an item that was refused by a call that succeeded, and is not sent again.
	Refused func(key registry.Key, fact, why string)
	GaveUp  func()
	// Owed holds what Refused records. Nil remembers nothing.
	Owed *Refusals
	// Origin is the origin of the peer's own instances, which it sends back when they are newer.
	Origin registry.Origin
}
