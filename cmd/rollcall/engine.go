package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/cmd/probe"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/replication"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus"
	"github.com/seed-20419f34/rollcall/store/local"
)

// engine is what orders a node's operations and replicates them, in either mode. Nothing of it runs yet.
type engine struct {
	service registry.Service
	run     func(context.Context) error // until ctx ends (nil), or the node must not go on
	cluster httpd.Cluster
	members httpd.Members // nil: nodes are not members of anything
	peers   *peers
	// coordination is sessions, keys and locks; nil: they need consensus, which this node is without.
	coordination httpd.Coordination
	// setSyncDelay is consensus.Raft's or local.Store's.
	setSyncDelay func(time.Duration)
	// leaderDiskFull is consensus.Raft's; nil in mode ap.
	leaderDiskFull func(context.Context) bool
}

// engineEnv is what both engines need.
type engineEnv struct {
	name    string
	http    string   // the node's address for clients
	own     []string // all addresses that are known to be the node's
	log     *slog.Logger
	metrics *prometheus.Registry
	// diskFull says that the disk of the data directory is nearly full.
	diskFull func() bool
}

// openEngine opens the data directory by which mode the settings say: from here on nobody asks.
func (c *Config) openEngine(env engineEnv) (*engine, error) {
	if c.Mode == modeAP {
		return c.openLocal(env)
	}
	return c.openRaft(env)
}

// openRaft makes the engine of a node of a cluster.
func (c *Config) openRaft(env engineEnv) (*engine, error) {
	p := &peers{datacenter: c.Datacenter, node: env.name}
	config := c.storeConfig(env)
	config.Spares = p.spares
	config.Answer = p.answer
	raft, err := consensus.Open(config)
	if err != nil {
		return nil, err
	}
	p.ask = raft.AskLeader
	p.sends = raft.Leader
	service := planted(env.name, raft)
	err = c.openPeers(p, env, service, func() string {
		v, _ := raft.View(context.Background(), registry.Stale) // never fails
		return v.Epoch()
	})
	if err != nil {
		return nil, errors.Join(err, abandon(raft.Run))
	}
	run := func(ctx context.Context) error {
		return together(ctx, raft.Run, func(ctx context.Context) {
			c.lead(ctx, raft, p, env)
		})
	}
	return &engine{
		service: service, run: run, cluster: cluster{raft}, members: members{raft}, peers: p,
		coordination: raft.Coordination(), setSyncDelay: raft.SetSyncDelay, leaderDiskFull: raft.LeaderDiskFull,
	}, nil
}

// lead does beside the store what only a leader does: it sends to the peers and probes services.
func (c *Config) lead(ctx context.Context, raft *consensus.Raft, p *peers, env engineEnv) {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() {
		raft.WhileLeading(ctx, func(ctx context.Context, _ registry.Epoch) { p.send(ctx, env.log) })
	})
	if c.Checks.Probes {
		prober := c.prober(raft, env)
		both.Go(func() { raft.WhileLeading(ctx, prober.Run) })
	}
}

// prober makes what runs the HTTP and TCP checks of services.
func (c *Config) prober(raft *consensus.Raft, env engineEnv) *probe.Prober {
	return probe.New(probe.Config{
		Registry: raft,
		Watch:    func() (<-chan struct{}, func()) { return raft.Coordination().WatchCatalog("") },
		Rules:    c.Checks.Rules,
		Log:      env.log,
		Metrics:  env.metrics,
	})
}

// openLocal makes the engine of a node without consensus: once it has what the others have, it sends
// to all peers.
func (c *Config) openLocal(env engineEnv) (*engine, error) {
	p := &peers{datacenter: c.Datacenter, node: env.name}
	config := c.storeConfig(env)
	config.Spares = p.spares
	config.Age = p.age
	copied := make(chan struct{})
	config.Copy = func(ctx context.Context) error {
		defer close(copied)
		return p.replicator.Copy(ctx)
	}
	node, err := local.Open(config)
	if err != nil {
		return nil, err
	}
	p.ask = p.answer
	p.sends = func() string { return "" }
	service := planted(env.name, node)
	if err := c.openPeers(p, env, service, func() string {
		id, _ := node.Identity()
		return id
	}); err != nil {
		return nil, errors.Join(err, abandon(node.Run))
	}
	run := func(ctx context.Context) error {
		return together(ctx, node.Run, func(ctx context.Context) {
			select {
			case <-copied:
				p.send(ctx, env.log)
			case <-ctx.Done():
			}
		})
	}
	return &engine{service: actingService{service, p.replicator}, run: run, cluster: nodes{env.name, env.http, c.Datacenter, p.replicator, node}, peers: p, setSyncDelay: node.SetSyncDelay}, nil
}

// storeConfig is the settings of the store, and what is none of them.
func (c *Config) storeConfig(env engineEnv) store.Config {
	s := c.Store
	s.Node, s.Datacenter, s.HTTPAdvertise = env.name, c.Datacenter, env.http
	s.DiskFull, s.Log, s.Metrics = env.diskFull, env.log, env.metrics
	s.Settings = c.leases()
	return s
}

// openPeers makes the replicator of a node.
func (c *Config) openPeers(p *peers, env engineEnv, service registry.Service, sender func() string) error {
	configs, err := c.peers(env.own...)
	if err != nil {
		return err
	}
	p.replicator, err = replication.New(replication.Config{
		Side: link.Side{
			Service:    service,
			Datacenter: c.Datacenter,
			Node:       env.name,
			HTTP:       env.http,
			Sender:     sender,
			Consensus:  c.Mode == modeCP,
			Peers:      configs,
			Log:        env.log,
		},
		Repair:  c.Replication.Repair,
		Metrics: env.metrics,
	})
	return err
}

// abandon closes what was opened and will not run.
func abandon(run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return run(ctx)
}

// together runs the store, and beside it what works with it, which ends before the store does: what it
// still has to note needs the store.
func together(ctx context.Context, run func(context.Context) error, beside ...func(context.Context)) error {
	inner, stop := context.WithCancel(ctx)
	outer, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer stopStore()
		var all sync.WaitGroup
		for _, run := range beside {
			all.Go(func() { run(inner) })
		}
		all.Wait()
		<-inner.Done()
	}()
	err := run(outer)
	stop()
	if err == nil {
		<-ended
		return nil
	}
	select {
	case <-ended:
	case <-time.After(besideLimit): // who asks a disk that hangs would keep a node that must not go on
	}
	return err
}

// besideLimit bounds the wait for what works with a store that has failed.
const besideLimit = 2 * time.Second

// actingService is a registry of which the operator's acts on self-preservation are told to the other
// nodes of the datacenter: without consensus each node has its own.
type actingService struct {
	registry.Service
	replicator *replication.Replicator
}

// Apply implements registry.Service.
func (s actingService) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	results, err := s.Service.Apply(ctx, origin, ops...)
	if err != nil || origin != registry.FromClient {
		return results, err
	}
	for i, op := range ops {
		if act, ok := op.(registry.SelfPreservation); ok && results[i].Outcome == registry.Done {
			s.replicator.Act(act)
		}
	}
	return results, nil
}
