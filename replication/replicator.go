// Package replication carries a registry's changes to its peers: nodes of the same datacenter (without consensus),
// other datacenters, and Netflix Eureka servers. It reads the registry's change list, keeps a durable cursor per
// peer, and repairs by digest what the list no longer shows. It orders nothing and stores nothing itself: everything
// goes through registry.Service. A batching dispatcher per peer (package batcher) hands the tasks to a link: to a
// Eureka server in this package, to a Rollcall server in package rollcallpeer, which also receives what such peers
// send here. Requests of Eureka servers are served by package httpd/eurekaroutes. Its files, from the top:
//
//	replicator.go  the side of a node: what the rest of the server calls
//	config.go      settings, and the errors of calls
//	metrics.go     the figures of all peers
//	status.go      the state of a peer, in words and numbers
//	acknowledge.go the cursors in the state
//	sending.go     a peer and its feeds, one after the other
//	feed.go        from the change list to tasks, for one peer
//	passing.go     which peers get which changes
//	repair.go      comparisons with a peer, beside its feed
//	dispatch.go    how tasks go from a dispatcher to a link
//	acts.go        sends operators' acts: of several, the newest counts
//	cursor.go      how far a peer is along the change list
//	cutpolicy.go   instances of a peer whose link is cut
//	peer.go        what is known and counted of a peer
//	eureka.go      the link to a Eureka server: calls, batches, and what responses ask for
//	eurekaitems.go what a task becomes there, and this node as an instance of the application EUREKA
//	senders.go     which peer a Eureka server is that sends here
package replication

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/rollcallpeer"
)

// Replicator is a node's side of all replication. It is safe for concurrent use.
type Replicator struct {
	*rollcallpeer.Receiver
	config  Config
	newPeer func(link.PeerConfig) *peer
	waiting *prometheus.HistogramVec // of each peer's tasks
	eurekas eurekaSenders
	changed chan struct{} // the set of peers has changed

	setting sync.Mutex // held while peers are replaced
	peers   atomic.Pointer[[]*peer]
}

// New checks the configuration and reports every mistake at once. It starts nothing.
func New(c Config) (*Replicator, error) { return newReplicator(c, newLink) }

func newReplicator(c Config, newLink func(link.Env) link.Link) (*Replicator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	c.Incarnation, c.Refusals = link.NewIncarnation(), link.NewRefusals(c.World, c.Log)
	r := &Replicator{Receiver: rollcallpeer.NewReceiver(c.Side), config: c, waiting: newWaiting(), changed: make(chan struct{}, 1)}
	r.newPeer = func(p link.PeerConfig) *peer { return newPeer(c, p, r.waiting.WithLabelValues(p.Name), newLink) }
	peers := make([]*peer, len(c.Peers))
	for i, p := range c.Peers {
		peers[i] = r.newPeer(p)
	}
	r.peers.Store(&peers)
	if c.Metrics != nil {
		c.Metrics.MustRegister(newMetrics(r.present, r.statusOf), r.waiting)
		c.Metrics.MustRegister(r.Metrics()...)
		c.Metrics.MustRegister(c.Refusals.Total)
	}
	return r, nil
}

// present returns the current peers.
func (r *Replicator) present() []*peer { return *r.peers.Load() }

// newLink returns a link of the peer's kind.
func newLink(env link.Env) link.Link {
	if env.Peer.Kind == link.Eureka {
		return newEurekaLink(env)
	}
	return rollcallpeer.New(env)
}

// Run sends to all peers until ctx ends: with consensus for one leadership, otherwise for as long as the node runs.
// It then returns nil, or registry.ErrClosed.
func (r *Replicator) Run(ctx context.Context) error {
	r.config.Incarnation.Draw()
	g, ctx := errgroup.WithContext(ctx)
	after := r.config.View().Index()
	g.Go(func() error { return r.watch(ctx, after) })
	g.Go(func() error { return acknowledge(ctx, &r.config.Side, r.present) })
	g.Go(func() error { r.runPeers(ctx); return nil })
	err := g.Wait()
	acknowledgeLast(ctx, &r.config.Side, r.present())
	return err
}

// watch wakes the peers when something has changed after an index. One wait serves all of them.
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
		for _, p := range r.present() {
			p.wake()
		}
	}
}

// Copy copies what the other nodes of this datacenter have, after this node has started, as Receiver.Copy does.
func (r *Replicator) Copy(ctx context.Context) error {
	return r.Receiver.Copy(ctx, r.config.CopyWait)
}

// Act sends the other nodes of this datacenter an operator's act that is not in the change list.
func (r *Replicator) Act(op registry.SelfPreservation) {
	for _, p := range r.present() {
		if f := p.currentFeed(); f != nil && f.acts != nil {
			f.acts.Process(struct{}{}, op, time.Now().Add(f.Expiry))
		}
	}
}

// Reads returns what this node reads and writes, in the form of the header codec.LevelHeader.
func (r *Replicator) Reads() string {
	if r.config.Levels == nil {
		return ""
	}
	return r.config.Levels().String()
}

// levelsAge is how old a node's report of its levels may be: it comes with every response, and every few seconds
// otherwise.
const levelsAge = 30 * time.Second

// Levels returns what the other nodes of this datacenter read.
func (r *Replicator) Levels() []codec.NodeReads {
	var nodes []codec.NodeReads
	for _, p := range r.present() {
		if l, ok := p.link.(link.Rollcall); ok && p.Kind == link.Node {
			said, at := l.Levels()
			nodes = append(nodes, codec.NodeReads{Name: p.Name, Known: time.Since(at) < levelsAge, Reads: said})
		}
	}
	return nodes
}

// Diff compares with a peer and changes nothing. Errors: ErrUnknownPeer, ErrNotSending, ErrNoDigests, or the
// transport's.
func (r *Replicator) Diff(ctx context.Context, peer string) (api.PeerDiff, error) {
	f, err := r.feed(peer)
	if err != nil {
		return api.PeerDiff{}, err
	}
	d, _, err := f.link.Compare(ctx, false)
	return d, err
}

// Repair compares with a peer and sends what it lacks; to a Eureka server, everything. It returns when the comparison
// is done and the difference is queued. It returns the errors of Diff.
func (r *Replicator) Repair(ctx context.Context, peer string) (api.PeerDiff, error) {
	f, err := r.feed(peer)
	if err != nil {
		return api.PeerDiff{}, err
	}
	return f.repair(ctx)
}

// Pause stops or resumes the sending to a peer, whichever node does it now or later. Errors: ErrUnknownPeer, or
// registry.Service's.
func (r *Replicator) Pause(ctx context.Context, peer string, paused bool, by registry.Act) error {
	p, err := r.peer(peer)
	if err != nil {
		return err
	}
	_, err = registry.Unrevoked(r.config.Service.Apply(ctx, registry.FromClient, registry.PausePeer{Peer: peer, Paused: paused, By: by}))
	if err != nil {
		return fmt.Errorf("pause %s: %w", peer, err)
	}
	p.wake()
	return nil
}

// EurekaSender returns the name of the Eureka server that sends from an identity (DiscoveryIdentity-Id, may be empty)
// and an address (host:port): the peer with that host, otherwise "eureka".
func (r *Replicator) EurekaSender(identity, address string) string {
	return r.eurekas.name(r.config.Present(), identity, address)
}

func (r *Replicator) peer(name string) (*peer, error) {
	for _, p := range r.present() {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknownPeer, name)
}

// feed returns a peer's current feed.
func (r *Replicator) feed(name string) (*feed, error) {
	p, err := r.peer(name)
	if err != nil {
		return nil, err
	}
	f := p.currentFeed()
	if f == nil {
		return nil, p.notSending()
	}
	return f, nil
}

// Status returns the state of every peer, in the order of the configuration.
func (r *Replicator) Status() []api.Peer { return r.statusOf(r.present()) }

func (r *Replicator) statusOf(peers []*peer) []api.Peer {
	v := r.config.View()
	now := r.config.Service.Health().Clock
	belonging := belonging(peers, v, now)
	statuses := make([]api.Peer, len(peers))
	for i, p := range peers {
		statuses[i] = p.status(v, now)
		statuses[i].Incoming = p.incoming(v, now, belonging[p.Name])
	}
	return statuses
}

// Refusals returns what this node remembers of the items from other servers that it refuses.
func (r *Replicator) Refusals() *link.Refusals { return r.config.Refusals }

// Cut returns how long a datacenter or Eureka server may be silent before its link counts as cut.
func (r *Replicator) Cut(dc string) time.Duration { return r.config.Cut(dc) }

// Spares reports whether expired leases of another datacenter stay for now: its link is cut, and that is the policy
// in force in the cluster. heard is how long ago (lease clock) it was last heard; ok is false if it never was.
func (r *Replicator) Spares(dc string, heard time.Duration, ok bool) bool {
	p, err := r.peer(dc)
	if err != nil || p.Kind == link.Node || !p.cut(heard, ok) {
		return false
	}
	c := policyOf(p.config.View(), dc)
	return c.Keep && (c.For == 0 || ok && heard <= c.For)
}

// Age returns the time since the longest-silent node of this datacenter was last reached, or 0 if no other node
// exists.
func (r *Replicator) Age() time.Duration {
	var age time.Duration
	for _, p := range r.present() {
		if p.Kind == link.Node {
			since, success := p.reachedAt()
			if !success.IsZero() {
				since = success
			}
			age = max(age, time.Since(since))
		}
	}
	return age
}

// SetPeers replaces the peers while the replicator runs, or before. It leaves unchanged peers alone; sending to a
// peer with changed settings restarts from its cursor. The error lists every mistake in the peers; then nothing has
// changed.
func (r *Replicator) SetPeers(configs []link.PeerConfig) error {
	side := r.config.Side
	side.Peers = configs
	if err := side.Validate(); err != nil {
		return err
	}
	r.setting.Lock()
	defer r.setting.Unlock()
	configs = filled(configs)
	before := map[string]*peer{}
	for _, p := range r.present() {
		before[p.Name] = p
	}
	same := len(configs) == len(before)
	peers := make([]*peer, len(configs))
	for i, c := range configs {
		old := before[c.Name]
		if old != nil && sameSettings(old.PeerConfig, c) {
			peers[i] = old
			delete(before, c.Name)
			continue
		}
		same = false
		if old != nil {
			r.waiting.DeleteLabelValues(c.Name)
			delete(before, c.Name)
		}
		peers[i] = r.newPeer(c)
		if old != nil {
			peers[i].record.since, peers[i].record.success = old.reachedAt()
		}
	}
	if same {
		return nil
	}
	for name := range before {
		r.waiting.DeleteLabelValues(name)
	}
	r.config.Now.Store(&configs)
	r.peers.Store(&peers)
	r.eurekas.forget()
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return nil
}

// sameSettings compares two peers. The settings of connections are the same for all.
func sameSettings(a, b link.PeerConfig) bool {
	a.TLS, b.TLS = nil, nil
	return reflect.DeepEqual(a, b)
}

// sending is a goroutine that sends to one peer.
type sending struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// runPeers sends to the current peers until ctx ends.
func (r *Replicator) runPeers(ctx context.Context) {
	running := map[*peer]sending{}
	var all sync.WaitGroup
	defer all.Wait()
	for {
		present := map[*peer]bool{}
		for _, p := range r.present() {
			present[p] = true
		}
		r.stopOthers(ctx, running, present)
		for p := range present {
			if _, runs := running[p]; runs {
				continue
			}
			ctx, stop := context.WithCancel(ctx)
			s := sending{stop, make(chan struct{})}
			running[p] = s
			all.Go(func() {
				defer close(s.ended)
				defer stop()
				p.run(ctx)
			})
		}
		select {
		case <-r.changed:
		case <-ctx.Done():
			return
		}
	}
}

// stopOthers stops sending to the peers that are no longer present, and stores in the state how far they came: a peer
// with the same name and other settings goes on from there.
func (r *Replicator) stopOthers(ctx context.Context, running map[*peer]sending, present map[*peer]bool) {
	var stopped []*peer
	for p, s := range running {
		if !present[p] {
			s.stop()
			stopped = append(stopped, p)
		}
	}
	for _, p := range stopped {
		<-running[p].ended
		delete(running, p)
	}
	if len(stopped) > 0 {
		acknowledgeLast(ctx, &r.config.Side, stopped)
	}
}
