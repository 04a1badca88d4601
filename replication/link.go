package replication

import (
	"context"
	"errors"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/batcher"
)

// ErrNoDigests: the peer is a Eureka server, which cannot be compared with.
var ErrNoDigests = errors.New("not offered for Eureka servers")

// link transmits to one peer.
type link interface {
	batcher.Processor[task]
	// run does what is to be done beside tasks, until ctx ends: it keeps the link known to be alive.
	run(ctx context.Context) error
	// compare compares with the peer. With repair it returns the tasks that make the peer equal too.
	// ErrNoDigests: it cannot; then the tasks, with repair, are everything.
	compare(ctx context.Context, repair bool) (api.PeerDiff, []task, error)
	// url is the one in use, without user info.
	url() string
}

// actor is a link that also tells an operator's act that is in no change list: those to nodes of the
// own datacenter.
type actor interface {
	act(ctx context.Context, op registry.SelfPreservation) batcher.Result
}

// linkEnv is what a link needs.
type linkEnv struct {
	Side
	Peer PeerConfig
	// submit queues a task, such as the Register that an answer of 404 asks for.
	submit func(task)
	// sent counts a fact that the peer took ("register", "heartbeat", "cancel", "override").
	sent func(fact string)
	// succeeded and failed note the end of a call, for the status; failed takes a sentence.
	succeeded func()
	failed    func(err error)
	// origin is what the peer's own instances, which it sends back as newer, are applied as.
	origin registry.Origin
}
