// Package replication carries a registry's changes to its peers: nodes of the own datacenter (without
// consensus), other datacenters, and Netflix Eureka servers. It reads the registry's change list, keeps
// a durable cursor per peer, and repairs by digest what the list no longer tells; a batching dispatcher
// per peer (package batcher) sends. It also answers what peers of the same kind send here. It orders
// nothing and stores nothing by itself: all goes through registry.Service.
package replication

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/eurekapeer"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/rollcallpeer"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// Errors that a caller can act on, beside those of registry.Service.
var (
	// ErrMalformed: a message cannot be read. Its text says what is wrong.
	ErrMalformed = wire.ErrMalformed
	// ErrStranger: a message of a datacenter that is no peer of this one.
	ErrStranger = rollcallpeer.ErrStranger
	// ErrAhead: the clock of a message has gone on for longer than its sender was silent. Its text says more.
	ErrAhead = rollcallpeer.ErrAhead
	// ErrUnknownSender: the clock of no sender of that name is known.
	ErrUnknownSender = rollcallpeer.ErrUnknownSender
	// ErrUnknownPeer: there is no peer of that name.
	ErrUnknownPeer = errors.New("no such peer")
	// ErrNotSending: this node does not send now; another one, or none, does.
	ErrNotSending = errors.New("this node does not send")
	// ErrNoDigests: the peer is a Eureka server, which cannot be compared with.
	ErrNoDigests = link.ErrNoDigests
)

// Replicator is a node's side of all replication. Safe for concurrent use.
type Replicator struct {
	*rollcallpeer.Receiver
	config  Config
	peers   []*peer
	metrics *metrics
	eurekas eurekapeer.Senders
}

// New checks the configuration, every mistake at once. It starts nothing.
func New(c Config) (*Replicator, error) { return newReplicator(c, newLink) }

func newReplicator(c Config, newLink func(link.Env) link.Link) (*Replicator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	c.Incarnation = link.NewIncarnation()
	r := &Replicator{Receiver: rollcallpeer.NewReceiver(c.Side), config: c}
	m := newMetrics(r)
	r.metrics = m
	for _, p := range c.Peers {
		r.peers = append(r.peers, newPeer(c, p, m, newLink))
	}
	if c.Metrics != nil {
		c.Metrics.MustRegister(m, m.waiting)
		c.Metrics.MustRegister(r.Metrics()...)
	}
	return r, nil
}

// newLink makes the link of a peer's kind.
func newLink(env link.Env) link.Link {
	if env.Peer.Kind == link.Eureka {
		return eurekapeer.New(env)
	}
	return rollcallpeer.New(env)
}

// Run sends to all peers until ctx ends: with consensus, for one leadership; else for as long as the
// node runs. It returns nil then, or registry.ErrClosed.
func (r *Replicator) Run(ctx context.Context) error {
	r.config.Incarnation.Draw()
	g, ctx := errgroup.WithContext(ctx)
	after := r.config.View().Index()
	g.Go(func() error { return r.watch(ctx, after) })
	g.Go(func() error { return r.acknowledge(ctx) })
	for _, p := range r.peers {
		g.Go(func() error {
			p.run(ctx)
			return nil
		})
	}
	err := g.Wait()
	r.acknowledgeLast(ctx)
	return err
}

// watch wakes the peers when something changed after an index. One wait serves all of them.
func (r *Replicator) watch(ctx context.Context, after registry.Index) error {
	for {
		c, err := r.config.Service.Changes(ctx, after, registry.Selector{})
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, registry.ErrTooOld):
			after = r.config.View().Index()
		case err != nil:
			return fmt.Errorf("wait for changes after %d: %w", after, err)
		default:
			after = c.View.Index()
		}
		for _, p := range r.peers {
			p.poke()
		}
	}
}

// Copy takes over what the other nodes of this datacenter have, when this one has started, as
// Receiver.Copy does.
func (r *Replicator) Copy(ctx context.Context) error {
	return r.Receiver.Copy(ctx, r.config.CopyWait)
}

// Act tells the other nodes of the own datacenter an operator's act that is in no list.
func (r *Replicator) Act(op registry.SelfPreservation) {
	for _, p := range r.peers {
		if s := p.sending(); s != nil {
			s.tellAct(op)
		}
	}
}

// Diff compares with a peer and changes nothing. Errors: ErrUnknownPeer, ErrNotSending, ErrNoDigests, or the
// transport's.
func (r *Replicator) Diff(ctx context.Context, peer string) (api.PeerDiff, error) {
	s, err := r.session(peer)
	if err != nil {
		return api.PeerDiff{}, err
	}
	d, _, err := s.link.Compare(ctx, false)
	return d, err
}

// Repair compares with a peer and sends what it lacks; for a Eureka server, everything. It returns when the
// comparison is done and what differs is queued. Errors: as Diff.
func (r *Replicator) Repair(ctx context.Context, peer string) (api.PeerDiff, error) {
	s, err := r.session(peer)
	if err != nil {
		return api.PeerDiff{}, err
	}
	return s.repair(ctx)
}

// Pause stops the sending to a peer, or resumes it, whichever node does it now or later. Errors:
// ErrUnknownPeer, or registry.Service's.
func (r *Replicator) Pause(ctx context.Context, peer string, paused bool, by registry.Act) error {
	p, err := r.peer(peer)
	if err != nil {
		return err
	}
	_, err = r.config.Service.Apply(ctx, registry.FromClient, registry.PausePeer{Peer: peer, Paused: paused, By: by})
	if err != nil {
		return fmt.Errorf("pause %s: %w", peer, err)
	}
	p.poke()
	return nil
}

// EurekaSender is the name of the Eureka server that sends from an identity (DiscoveryIdentity-Id, may
// be empty) and an address (host:port): that of the peer with such a host, else "eureka".
func (r *Replicator) EurekaSender(identity, address string) string {
	return r.eurekas.Name(r.config.Peers, identity, address)
}

func (r *Replicator) peer(name string) (*peer, error) {
	for _, p := range r.peers {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknownPeer, name)
}

// session is a peer's present one.
func (r *Replicator) session(name string) (*session, error) {
	p, err := r.peer(name)
	if err != nil {
		return nil, err
	}
	s := p.sending()
	if s == nil {
		return nil, p.notSending()
	}
	return s, nil
}
