package registry

import (
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// AckPeer moves a peer's cursor: every change up to it is known to the peer. It never goes back. It
// takes no Index.
type AckPeer struct {
	Peer   string
	Cursor Index
}

func (AckPeer) kind() Kind { return 15 }

func (op AckPeer) apply(r *Registry, at at) Result { return r.ackPeer(op) }

func (op AckPeer) fields(c *codec.Codec) AckPeer {
	c.String(&op.Peer)
	codec.Uint(c, &op.Cursor)
	return op
}

// PausePeer stops or resumes the sending to a peer, on whatever node does it. It takes no Index.
type PausePeer struct {
	Peer   string
	Paused bool
	By     Act
}

func (PausePeer) kind() Kind { return 16 }

func (op PausePeer) apply(r *Registry, at at) Result { return r.pausePeer(op) }

func (op PausePeer) fields(c *codec.Codec) PausePeer {
	c.String(&op.Peer)
	c.Bool(&op.Paused)
	op.By.fields(c)
	return op
}

// PeerState is what the state keeps of a peer that this side sends to.
type PeerState struct {
	Name   string
	Cursor Index
	Known  bool // a cursor was acknowledged
	Paused bool
	By     Act   // who paused or resumed it
	Since  Stamp // when
}

// Fields walks a peer.
func (p *PeerState) Fields(c *codec.Codec) {
	c.String(&p.Name)
	codec.Uint(c, &p.Cursor)
	c.Bool(&p.Known)
	c.Bool(&p.Paused)
	p.By.fields(c)
	p.Since.Fields(c)
}

// ackPeer moves a peer's cursor, at most to the newest change.
func (r *Registry) ackPeer(op AckPeer) Result {
	p := r.known.peer(op.Peer)
	cursor := min(op.Cursor, r.index)
	if p.Known && cursor <= p.Cursor {
		return Result{}
	}
	p.Cursor, p.Known = cursor, true
	r.learn(func(k *known) { k.peers = with(k.peers, p) })
	return Result{}
}

// pausePeer stops or resumes the sending to a peer.
func (r *Registry) pausePeer(op PausePeer) Result {
	p := r.known.peer(op.Peer)
	if p.Paused == op.Paused {
		return Result{}
	}
	p.Paused, p.By, p.Since = op.Paused, op.By.clone(), r.clock
	r.learn(func(k *known) { k.peers = with(k.peers, p) })
	return Result{}
}

// peer is the state of a peer, to be changed.
func (k *known) peer(name string) PeerState {
	p, ok := find(k.peers, name)
	if !ok {
		p.Name = strings.Clone(name)
	}
	return p
}

// Peer returns what the state keeps of a peer.
func (v *View) Peer(name string) PeerState {
	p, ok := find(v.known.peers, name)
	if !ok {
		p.Name = name
	}
	return p
}
