package rollcallpeer

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// keepAlive is the longest pause before an empty message is sent: for a peer that hears nothing, the link counts as
// cut.
const keepAlive = 5 * time.Second

// Link transmits to Rollcall servers: a node of this datacenter, or any node of another datacenter.
type Link struct {
	env   link.Env
	calls *calls
	log   *slog.Logger
	every time.Duration // keepAlive, unless a test changes it

	open atomic.Bool // it was logged that callers are authenticated here but not at the peer

	mu       sync.Mutex
	sequence uint64
	sent     time.Time // start of the last message
}

// New returns the link to a peer.
func New(env link.Env) link.Link {
	l := &Link{
		env: env, calls: newCalls(env.Peer), log: env.Log.With("peer", env.Peer.Name), every: keepAlive,
	}
	if env.Peer.Kind == link.Node {
		l.calls.files.own, l.calls.files.log = env.AuthFile, l.log
	}
	return l
}

// AuthFileDiffers implements link.Rollcall.
func (l *Link) AuthFileDiffers() (differs, ok bool) { return l.calls.files.differs() }

// URL implements link.Link.
func (l *Link) URL() string { return link.WithoutUser(l.calls.peer.URLs[l.calls.current()]) }

// level returns the level of the formats at which the peer is written to: the one that it writes itself, if this side
// writes it, too.
func (l *Link) level() byte {
	own := l.env.Writes()
	if said, at := l.calls.Levels(); !at.IsZero() {
		return min(own, said.Writes)
	}
	return own
}

// Levels implements link.Rollcall.
func (l *Link) Levels() (codec.Reads, time.Time) { return l.calls.Levels() }

// AuthMode implements link.Rollcall.
func (l *Link) AuthMode() string { return l.calls.AuthMode() }

// silence returns the time since a message was last started; very long if none ever was.
func (l *Link) silence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.sent)
}

// head returns the head of the next message.
func (l *Link) head() Head {
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

// headOf returns the head of a message at a moment of the lease clock, without its sequence.
func headOf(s *link.Side, clock int64) Head {
	return Head{
		Datacenter: s.Datacenter, Node: s.Node, Sender: s.Sender(), Incarnation: s.Incarnation.Now(), Clock: clock,
	}
}

// heard returns how long ago (ms) this node heard each peer outside its datacenter.
func heard(s *link.Side, v *registry.View, now int64) map[string]int64 {
	ages := make(map[string]int64)
	for _, p := range s.Present() {
		if p.Kind == link.Node {
			continue
		}
		if known, ok := v.Link(p.Name); ok {
			ages[p.Name] = age(now - known.LastContact)
		}
	}
	return ages
}
