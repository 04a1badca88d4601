package consensus

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
	"github.com/seed-20419f34/rollcall/store/disk"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// Open opens the data directory and the node-to-node port, and loads what the directory holds. It serves no call
// before Run.
func Open(cfg store.Config) (*Raft, error) {
	cfg.SetDefaults()
	panics := store.NewPanics(cfg.Log, cfg.Metrics)
	s := &Raft{
		cfg:        cfg,
		log:        cfg.Log,
		clock:      expiry.Clock{World: cfg.World},
		panics:     panics,
		metrics:    newMetrics(cfg.Metrics, panics),
		machine:    fsm.NewMachine(),
		digests:    membership.NewDigests(panics),
		leadership: &membership.LeaderState{Log: cfg.Log},
		notify:     make(chan bool, 16),
		fatal:      make(chan error, 1),
	}
	s.closing, s.stop = context.WithCancel(context.Background())
	s.saving, s.endSaving = context.WithCancel(context.Background())
	s.settings = settingsWatch{own: cfg.Settings, state: func() registry.Settings { return s.machine.View().Settings() }, log: cfg.Log}
	cfg.Metrics.MustRegister(expiry.PreservationGauges{Now: s.leaseTime}, expiry.SuspendedGauge(s.suspended), coordinationGauges{s}, store.LevelGauge(s.machine.Level))
	if err := s.open(time.Now()); err != nil {
		s.close()
		return nil, err
	}
	cfg.Metrics.MustRegister(append(raftGauges(s), s.net.Metrics()...)...)
	return s, nil
}

func (s *Raft) open(opened time.Time) error {
	var err error
	if s.net, err = port.Listen(s.cfg.World, s.cfg.ClusterAddr, s.cfg.ClusterAdvertise, s.cfg.TLS, s.log); err != nil {
		return err
	}
	if s.identity, err = membership.OpenIdentity(s.cfg.DataDir, disk.Owner{Mode: disk.ModeCP, Node: s.cfg.Node, Reads: codec.Newest, World: s.cfg.World}); err != nil {
		return err
	}
	s.machine.Performed = s.cfg.Test.Performed
	s.machine.Skip(s.identity.Start().Skipped)
	if err := s.checkRestoreFrom(); err != nil {
		return err
	}
	if s.disk, s.logs, err = raftio.Open(s.cfg.DataDir, s.cfg.RaftLog, s.fail); err != nil {
		return err
	}
	s.disk.Refused, s.logs.Damaged = s.reportRefused, s.reportDamaged
	s.disk.Wrote = func(took time.Duration) { s.metrics.syncs.Observe(took.Seconds()) }
	s.disk.Surround(s.cfg.Test.Write)
	s.SetSyncDelay(s.cfg.Test.SyncDelay)
	s.net.Closing = s.closing
	s.net.Life = s.cfg.Test.ConnectionLife
	s.net.Self = s.identity.Hello
	s.net.Known = s.machine.Boot
	s.net.Outdated = s.stopOutdated
	s.nodes = port.NewNodes(s.net, s.cfg.Test.Dial)
	s.compose(opened)
	if err := s.openRaft(); err != nil {
		return err
	}
	s.proposer.Raft, s.reader.Raft, s.members.Raft = s.raft, s.raft, s.raft
	return nil
}

// compose makes the parts of the node, which need Raft only when it was started.
func (s *Raft) compose(opened time.Time) {
	s.leadership.Self = s.serverID()
	s.members = membership.New(membership.Config{
		Node: s.cfg, Identity: s.identity, Port: s.net, Nodes: s.nodes, Machine: s.machine, Leadership: s.leadership, Digests: s.digests, Fail: s.fail,
		Propose: func(ctx context.Context, entry []byte) error {
			_, err := s.proposer.Start(entry, store.ResultWait/2).Wait(ctx, store.ResultWait)
			return err
		},
	})
	s.reader = newReader(readerConfig{
		World: s.cfg.World, Machine: s.machine, Leadership: s.leadership, Nodes: s.nodes, Members: s.members.All, DiskFull: s.cfg.DiskFull, Opened: opened, Closing: s.closing, Metrics: s.cfg.Metrics,
	})
	stamp := func() registry.Stamp {
		now := time.Now()
		lease, _ := s.clock.Read(now)
		return registry.Stamp{Lease: lease, Wall: s.cfg.World.Wall(now).UnixMilli()}
	}
	s.proposer = &proposer{Stamp: stamp, Level: s.machine.Level, Leadership: s.leadership, Metrics: s.metrics.commit}
	s.committer = newCommitter(committerConfig{
		InFlight: s.cfg.InFlight, NoBatching: s.cfg.Test.NoBatching, RenewalWait: s.cfg.RenewalWait, Node: s.serverID(), Boot: s.identity.Start().Boot,
		Leadership: s.leadership, Proposer: s.proposer, Nodes: s.nodes, TermsOf: s.reader.TermsOf, Above: s.members.Above, Metrics: s.metrics.commit,
	})
	calls := port.Calls{"Node.Ask": port.Method(s.serveAsk)}
	for _, more := range []port.Calls{s.members.Calls(), s.reader.Calls(), s.committer.Calls()} {
		maps.Copy(calls, more)
	}
	s.net.ServeNode = calls.Serve
}

func (s *Raft) openRaft() error {
	dir := filepath.Join(s.cfg.DataDir, disk.RaftDir)
	if err := raftio.RemoveUnfinishedSnapshots(s.cfg.DataDir); err != nil {
		return err
	}
	logger := raftio.NewLogger(s.log)
	snapshots, err := raftio.OpenSnapshots(s.cfg.DataDir, snapshotsKept, logger)
	if err != nil {
		return err
	}
	s.snapshots = &snapshotStore{SnapshotStore: snapshots, s: s}
	transport := raftio.NewTransport(s.transportConfig(logger), s.net, s.disk.During, s.closing)
	s.transport, s.logs.Stored = transport, transport.Wake
	s.net.Go(transport.PassOn)
	s.loop = &raftio.LoopWatch{
		Loop:     transport.MainLoop(),
		Leads:    func() bool { return s.raft.State() == raft.Leader },
		Disk:     s.disk.Started,
		Applied:  func() uint64 { return s.raft.AppliedIndex() },
		Received: transport.Received,
		Fail:     s.fail,
	}
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(s.serverID())
	conf.HeartbeatTimeout = s.cfg.HeartbeatTimeout
	conf.ElectionTimeout = s.cfg.ElectionTimeout
	conf.LeaderLeaseTimeout = s.cfg.LeaseTimeout
	conf.CommitTimeout = s.cfg.Test.CommitTimeout
	conf.SnapshotInterval = s.cfg.SnapshotInterval
	conf.SnapshotThreshold = s.cfg.SnapshotThreshold
	conf.TrailingLogs = s.cfg.TrailingLogs
	conf.MaxAppendEntries = raftio.MaxAppendEntries
	if s.cfg.Test.NoBatching {
		conf.MaxAppendEntries = 512 // they are small then, and many
	}
	// A removed leader must still say so, and close what it has open: Members.checkCluster ends it.
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	// Without batching many callers propose at once. Raft takes them together, as in any server without a group
	// commit of its own; otherwise the comparison would flatter ours.
	conf.BatchApplyCh = s.cfg.Test.NoBatching
	conf.NotifyCh = s.notify
	conf.Logger = logger
	if s.raft, err = raftio.New(conf, &stateMachine{s: s}, s.logs, s.disk.Stable(), s.snapshots, transport); err != nil {
		transport.Close()
		return raftio.ExplainLoad(dir, s.snapshots.err, err)
	}
	transport.SetApplied(s.raft.AppliedIndex)
	transport.SetLeads(func(term uint64) bool { return s.raft.State() == raft.Leader && s.raft.CurrentTerm() == term })
	s.disk.Serve()
	return nil
}

func (s *Raft) transportConfig(logger hclog.Logger) *raft.NetworkTransportConfig {
	conf := &raft.NetworkTransportConfig{
		Logger:          logger,
		Stream:          s.net,
		MaxPool:         raftio.MaxPool,
		MaxRPCsInFlight: 2, // docs/adr/0003: fail-stop on disk errors makes pipelining safe
		Timeout:         port.RaftTimeout,
	}
	if len(s.cfg.Test.Dial) > 0 {
		conf.ServerAddressProvider = dialProvider{s}
	}
	return conf
}

// dialProvider tells Raft's transport where to dial a server whose address is overridden.
type dialProvider struct{ s *Raft }

// ServerAddr implements raft.ServerAddressProvider. After an error, Raft takes the address from the cluster's
// configuration.
func (d dialProvider) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if o, ok := d.s.cfg.Test.Dial[disk.NodeName(string(id))]; ok {
		return raft.ServerAddress(o), nil
	}
	if id == raft.ServerID(d.s.serverID()) {
		return raft.ServerAddress(d.s.net.Addr().String()), nil
	}
	return "", fmt.Errorf("test.dial does not name %q", disk.NodeName(string(id)))
}
