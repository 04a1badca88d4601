package registry

import "strings"

// AckPeer moves a peer's cursor: every change up to it is known to the peer. It never goes back. It
// takes no Index.
type AckPeer struct {
	Peer   string
	Cursor Index
}

// PausePeer stops or resumes the sending to a peer, on whatever node does it. It takes no Index.
type PausePeer struct {
	Peer   string
	Paused bool
	By     Act
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
