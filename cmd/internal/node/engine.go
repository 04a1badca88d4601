package node

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/probe"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/own"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/world"
	"github.com/seed-20419f34/rollcall/replication"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus"
	"github.com/seed-20419f34/rollcall/store/local"
)

// engine orders a node's operations and replicates them, in either mode. Nothing runs before run.
type engine struct {
	service registry.Service
	run     func(context.Context) error // until ctx ends (nil), or the node must not go on
	cluster web.Cluster
	members own.Members // nil if nodes are not members of anything
	upgrade own.Upgrade
	peers   *peers
	// snapshots saves and restores snapshots for people.
	snapshots *snapshots
	// coordination offers sessions, keys and locks; nil in mode ap, because they need consensus.
	coordination consul.Coordination
	rules        probe.Rules // of checks; they know the nodes' machines
	// store is the service's store, in either mode.
	store interface {
		// Alive returns true once the loop that waits for the disk has replied, false when ctx has ended.
		Alive(ctx context.Context) bool
		// SetSyncDelay slows the disk down, for tests.
		SetSyncDelay(by time.Duration)
	}
	raft *consensus.Raft // the store in mode cp, for what needs consensus; nil in mode ap
}

// setup holds what both engines are made from.
type setup struct {
	*config.Config
	name      string
	version   string   // of the program
	http      string   // the node's address for clients
	addresses []string // all addresses known to be the node's
	world     *world.World
	log       *slog.Logger
	metrics   *prometheus.Registry
	disk      *diskMeter       // of the data directory
	auth      *config.AuthFile // nil: there is no auth.file
}

// authDigest returns the digest of auth.file.
func (s setup) authDigest() string {
	if s.auth == nil {
		return link.NoAuthFile
	}
	return s.auth.Digest()
}

// openEngine opens the data directory in the mode that the settings name. Nothing else depends on the mode.
func (s setup) openEngine() (*engine, error) {
	if s.Mode == config.AP {
		return s.openLocal()
	}
	return s.openRaft()
}

// openRaft makes the engine of a node of a cluster.
func (s setup) openRaft() (*engine, error) {
	p := &peers{world: s.world, datacenter: s.Datacenter, node: s.name}
	c := s.storeConfig()
	c.Spares = func(dc string, silence time.Duration, ok bool) bool { return p.replicator.Spares(dc, silence, ok) }
	c.Reply = p.reply
	raft, err := consensus.Open(c)
	if err != nil {
		return nil, err
	}
	p.call = raft.AskLeader
	p.sender = raft.Leader
	service := planted(s.name, raft)
	err = s.openPeers(p, service, raft.Members().Reads, s.rules(raft.Access), func() string {
		v, _ := raft.View(context.Background(), registry.Stale) // never fails
		return v.Epoch()
	})
	if err != nil {
		return nil, errors.Join(err, abandon(raft.Run))
	}
	saves := &snapshots{dir: s.Store.DataDir, version: s.version, source: raft.Backup, check: raft.CheckRestore, restore: raft.Restore, plan: planOf(raft.Backup)}
	scheduled := s.backups(saves)
	run := func(ctx context.Context) error {
		return runWith(ctx, raft.Run, func(ctx context.Context) {
			s.lead(ctx, raft, p)
		}, func(ctx context.Context) {
			s.bootstrapAuth(ctx, raft)
		}, func(ctx context.Context) {
			if scheduled != nil {
				raft.WhileLeading(ctx, func(ctx context.Context, _ registry.Epoch) { scheduled.run(ctx) })
			}
		})
	}
	return &engine{
		service: service, run: run, cluster: cluster{raft.Members()}, members: members{raft.Members()},
		upgrade: upgrade{raft.Members(), s.Store.Upgrade}, peers: p, snapshots: saves,
		coordination: raft.Coordination(), rules: s.checkRules(raft), store: raft, raft: raft,
	}, nil
}

// lead does what only a leader does beside the store: it sends to the peers, watches the other nodes, judges alias
// checks and runs probes.
func (s setup) lead(ctx context.Context, raft *consensus.Raft, p *peers) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		raft.WhileLeading(ctx, func(ctx context.Context, _ registry.Epoch) { p.send(ctx, s.log) })
	})
	watch := &clusterWatch{status: cluster{raft.Members()}.Status, panics: store.NewPanics(s.log, s.metrics)}
	s.metrics.MustRegister(watch)
	all.Go(func() { raft.WhileLeading(ctx, watch.run) })
	rules := s.rules(raft.Access)
	all.Go(func() {
		raft.WhileLeading(ctx, func(ctx context.Context, epoch registry.Epoch) { judgeAliases(ctx, epoch, raft, rules.Allows) })
	})
	if s.Checks.Probes {
		prober := probe.New(probe.Config{
			Registry: raft,
			Watch: func() (<-chan struct{}, func()) {
				return raft.Coordination().WatchCatalog(registry.Topic{Kind: registry.AllTopic})
			},
			World: s.world, Rules: s.checkRules(raft),
			MayProbe: func(token, at string) bool { return rules.Allows(token, access.ToProbe(at)) },
			Log:      s.log,
			Metrics:  s.metrics,
		})
		all.Go(func() { raft.WhileLeading(ctx, prober.Run) })
	}
}

// checkRules returns where checks may look.
func (s setup) checkRules(raft *consensus.Raft) probe.Rules {
	r := s.Checks.Rules
	r.IsNode = func(a netip.Addr) bool {
		_, all := raft.Coordination().RaftAddresses()
		return slices.ContainsFunc(append(all, s.addresses...), func(address string) bool {
			at, err := netip.ParseAddrPort(address)
			return err == nil && at.Addr().Unmap() == a
		})
	}
	return r
}

// rules returns who may do what, by the cluster's table (nil in mode ap) and by auth.file.
func (s setup) rules(table func() *access.Table) web.AccessConfig {
	rules := web.AccessConfig{World: s.world, Floor: s.Floor(), Table: table}
	if s.auth != nil {
		rules.File = s.auth.Table
	}
	return rules
}

// openLocal makes the engine of a node without consensus. It sends to all peers once it has copied what the
// others have.
func (s setup) openLocal() (*engine, error) {
	p := &peers{world: s.world, datacenter: s.Datacenter, node: s.name}
	c := s.storeConfig()
	c.Spares = func(dc string, silence time.Duration, ok bool) bool { return p.replicator.Spares(dc, silence, ok) }
	c.Age = func() time.Duration { return p.replicator.Age() }
	c.Others = func() []codec.NodeReads { return p.replicator.Levels() }
	copied := make(chan struct{})
	c.Copy = func(ctx context.Context) error {
		defer close(copied)
		return p.replicator.Copy(ctx)
	}
	node, err := local.Open(c)
	if err != nil {
		return nil, err
	}
	p.call = p.reply
	p.sender = func() string { return "" }
	p.refusals = node.Refusals
	service := planted(s.name, node)
	if err := s.openPeers(p, service, node.Levels, s.rules(nil), func() string {
		id, _ := node.Identity()
		return id
	}); err != nil {
		return nil, errors.Join(err, abandon(node.Run))
	}
	here := &localSnapshots{service: service, node: s.name, datacenter: s.Datacenter, levels: node.Levels}
	saves := &snapshots{dir: s.Store.DataDir, version: s.version, source: here.source, check: here.check, restore: here.restore, plan: here.plan}
	scheduled := s.backups(saves)
	run := func(ctx context.Context) error {
		return runWith(ctx, node.Run, func(ctx context.Context) {
			select {
			case <-copied:
				p.send(ctx, s.log)
			case <-ctx.Done():
			}
		}, func(ctx context.Context) {
			select {
			case <-copied:
				if scheduled != nil {
					scheduled.run(ctx)
				}
			case <-ctx.Done():
			}
		})
	}
	self := api.NodeStatus{ID: s.name, HTTP: s.http, Version: s.version, Zone: s.NodeZone}
	return &engine{
		service: actingService{service, p.replicator}, run: run, cluster: nodes{self, s.Datacenter, s.disk.Left, p.replicator, node, s.world},
		upgrade: localUpgrade{node, s.Store.Upgrade}, peers: p, snapshots: saves, store: node,
	}, nil
}

// storeConfig returns the settings of the store, including those that other settings decide, and what the
// store needs beside them.
func (s setup) storeConfig() store.Config {
	c := s.Store
	c.Node, c.Datacenter, c.HTTPAdvertise, c.Version = s.name, s.Datacenter, s.http, s.version
	c.Zone, c.NoVote = s.NodeZone, !s.NodeVoter
	c.DiskFull, c.DiskFree, c.Log, c.Metrics = s.disk.Low, s.disk.Left, s.log, s.metrics
	c.Settings, c.World = s.Leases(), s.world
	if f := falsified(s.name); f != nil { // overridden only by the store's tests
		c.Test.Falsify = f
	}
	if f := performed(); f != nil {
		c.Test.Performed = f
	}
	return c
}

// openPeers makes the replicator of a node.
func (s setup) openPeers(
	p *peers, service registry.Service, levels func() codec.Reads, rules web.AccessConfig, sender func() string,
) error {
	var err error
	if p.files, err = s.Config.Replication.TLS.Open(s.log); err != nil {
		return err
	}
	var trust func() *tls.Config
	if p.files != nil {
		trust = p.files.Client
	}
	p.authFile = s.authDigest
	p.configured = func(c *config.Config) []link.PeerConfig {
		all := c.Peers(trust, s.addresses...)
		for i := range all {
			all[i].World = s.world
		}
		return all
	}
	p.replicator, err = replication.New(replication.Config{
		Side: link.Side{
			World:      s.world,
			Service:    service,
			Datacenter: s.Datacenter,
			Node:       s.name,
			HTTP:       s.http,
			Sender:     sender,
			Levels:     levels,
			AuthFile:   s.authDigest,
			AuthMode:   func() string { return rules.Mode().String() },
			Consensus:  s.Mode == config.CP,
			Peers:      p.configured(s.Config),
			Log:        s.log,
		},
		Repair:  s.Replication.Repair,
		Metrics: s.metrics,
	})
	return err
}

// abandon closes a store that was opened and will not run.
func abandon(run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return run(ctx)
}

// runWith runs the store, and beside it what works with the store. The latter ends first, because its last operations
// need the store.
func runWith(ctx context.Context, run func(context.Context) error, beside ...func(context.Context)) error {
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
	case <-time.After(besideLimit): // one of them may wait for a disk that hangs, but the node must not go on
	}
	return err
}

// besideLimit bounds the wait for what works with a failed store.
const besideLimit = 2 * time.Second

// actingService passes operators' acts on self-preservation on to the other nodes of the datacenter: without
// consensus each node has a self-preservation of its own.
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
