package rollcallpeer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// messagePath is the endpoint of messages; those of digests and of the state are below it.
const messagePath = "/v1/rollcall/replication"

// keepAlive is how long nothing may be sent before an empty message is: a peer that hears nothing takes
// the link for cut.
const keepAlive = 5 * time.Second

// rollcallLink transmits to Rollcall servers: a node of the own datacenter, or another datacenter, of
// which any node will do.
type rollcallLink struct {
	env   link.Env
	calls *rollcallCalls
	log   *slog.Logger
	every time.Duration // keepAlive

	mu       sync.Mutex
	sequence uint64
	sent     time.Time // when the last message was begun
}

func New(env link.Env) link.Link {
	return &rollcallLink{
		env: env, calls: newRollcallCalls(env.Peer), log: env.Log.With("peer", env.Peer.Name), every: keepAlive,
	}
}

// URL implements link.
func (l *rollcallLink) URL() string { return l.calls.inUse() }

// Run implements link: it sends an empty message at first, and whenever nothing else was sent for a
// while.
func (l *rollcallLink) Run(ctx context.Context) error {
	defer l.calls.client.CloseIdleConnections()
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-due.C:
		}
		if l.silence() >= l.every {
			l.send(ctx, nil)
		}
		due.Reset(l.every - l.silence())
	}
}

// silence is the time since a message was last begun; very long if none ever was.
func (l *rollcallLink) silence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.sent)
}

// head is what the next message begins with.
func (l *rollcallLink) head() wire.Head {
	h := headOf(&l.env.Side, l.env.Clock())
	if l.env.Peer.Kind == link.Node {
		h.Heard = heard(&l.env.Side, l.env.View(), h.Clock)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sequence++
	h.Sequence, l.sent = l.sequence, time.Now()
	return h
}

func headOf(s *link.Side, clock int64) wire.Head {
	return wire.Head{
		Datacenter: s.Datacenter, Node: s.Node, Sender: s.Sender(), Incarnation: s.Incarnation.Now(), Clock: clock,
	}
}

// heard is how long ago (ms) this node heard each peer that is no node of its datacenter.
func heard(s *link.Side, v *registry.View, now int64) map[string]int64 {
	ages := make(map[string]int64)
	for _, p := range s.Peers {
		if p.Kind == link.Node {
			continue
		}
		if known, ok := v.Link(p.Name); ok {
			ages[p.Name] = wire.Age(now - known.Heard)
		}
	}
	return ages
}

// Process implements batcher.Processor.
func (l *rollcallLink) Process(ctx context.Context, one link.Task) batcher.Result {
	return l.ProcessBatch(ctx, []link.Task{one})
}

// ProcessBatch implements batcher.Processor. The messages of one batch go one after the other; one that
// fails has those before it sent again with it, which changes nothing there.
func (l *rollcallLink) ProcessBatch(ctx context.Context, tasks []link.Task) batcher.Result {
	for _, part := range cutTells(l.tells(tasks)) {
		if result := l.send(ctx, part); result != batcher.Success {
			return result
		}
	}
	return batcher.Success
}

// Act implements actor.
func (l *rollcallLink) Act(ctx context.Context, op registry.SelfPreservation) batcher.Result {
	return l.send(ctx, []tell{{item: wire.ItemOf(op)}})
}
