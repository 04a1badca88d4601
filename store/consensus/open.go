package consensus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// snapshotsKept is how many snapshots stay: should the newest be damaged, an older one and the
// trailing log still give the whole state.
const snapshotsKept = 3

// Open opens the data directory and the node-to-node port, and loads what the directory holds.
// Nothing is answered before Run.
func Open(cfg store.Config) (*Raft, error) {
	cfg.SetDefaults()
	s := &Raft{
		cfg:     cfg,
		log:     cfg.Log,
		metrics: newMetrics(cfg.Metrics),
		machine: fsm.NewMachine(),
		notify:  make(chan bool, 16),
		fatal:   make(chan error, 1),
		opened:  time.Now(),
	}
	s.closing, s.stop = context.WithCancel(context.Background())
	s.saving, s.endSaving = context.WithCancel(context.Background())
	s.settings = settingsWatch{own: cfg.Settings, state: func() registry.Settings { return s.machine.View().Settings() }, log: cfg.Log}
	cfg.Metrics.MustRegister(expiry.PreservationGauges{Now: s.leaseTime}, expiry.SuspendedGauge(s.suspended), coordinationGauges{s})
	s.reads = newRounds(s.readRound)
	s.indexes = newRounds(s.indexRound)
	s.committer = newCommitter(s)
	if err := s.open(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Raft) open() error {
	var err error
	if s.net, err = listenNetwork(s.cfg.ClusterAddr, s.cfg.ClusterAdvertise, s.cfg.TLS, s.log); err != nil {
		return err
	}
	if s.id, err = disk.OpenIdentity(s.cfg.DataDir, disk.Owner{Mode: disk.ModeCP, Node: s.cfg.Node}); err != nil {
		return err
	}
	s.standing.Store(s.id)
	if s.disk, s.logs, err = openLogs(s.cfg.DataDir, s.fail); err != nil {
		return err
	}
	s.disk.refused, s.logs.damaged = s.noteRefused, s.noteDamaged
	s.SetSyncDelay(s.cfg.Test.SyncDelay)
	s.net.closing = s.closing
	s.net.self = s.hello
	s.net.known = s.machine.Boot
	s.net.outdated = s.stopOutdated
	s.peers = newPeers(s.net, s.cfg.Test.Dial)
	s.net.serveNode = s.serveCalls((&nodeCalls{s}).table())
	return s.openRaft()
}

func (s *Raft) openRaft() error {
	dir := filepath.Join(s.cfg.DataDir, disk.RaftDir)
	if err := removeUnfinishedSnapshots(s.cfg.DataDir); err != nil {
		return err
	}
	logger := newRaftLogger(s.log)
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, logger)
	if err != nil {
		return fmt.Errorf("open snapshots in %s: %w", dir, err)
	}
	s.snapshots = snapshots
	transport := &transport{NetworkTransport: raft.NewNetworkTransportWithConfig(s.transportConfig(logger)), net: s.net, closing: s.closing, rpcs: make(chan raft.RPC)}
	s.net.wg.Go(transport.passOn)
	s.loop = &loopWatch{
		rpcs:  transport.rpcs,
		leads: func() bool { return s.raft.State() == raft.Leader },
		steps: func() loopSteps { return loopSteps{disk: s.disk.begun(), applied: s.raft.AppliedIndex()} },
		fail:  s.fail,
	}
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(s.id.ServerID)
	conf.HeartbeatTimeout = s.cfg.HeartbeatTimeout
	conf.ElectionTimeout = s.cfg.ElectionTimeout
	conf.LeaderLeaseTimeout = s.cfg.LeaseTimeout
	conf.CommitTimeout = s.cfg.Test.CommitTimeout
	conf.SnapshotInterval = s.cfg.SnapshotInterval
	conf.SnapshotThreshold = s.cfg.SnapshotThreshold
	conf.TrailingLogs = s.cfg.TrailingLogs
	conf.MaxAppendEntries = appendEntries
	if s.cfg.Test.NoBatching {
		conf.MaxAppendEntries = 512 // they are small then, and many
	}
	// A leader that was removed must still say so, and close what it has open: recognise ends it.
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	// Without batching many callers propose at once; let Raft take them together, as it would in any
	// server that has no group commit of its own, or the comparison would flatter ours.
	conf.BatchApplyCh = s.cfg.Test.NoBatching
	conf.NotifyCh = s.notify
	conf.Logger = logger
	loaded := &snapshotStore{SnapshotStore: snapshots, s: s}
	if s.raft, err = newRaft(conf, &stateMachine{s: s, snapshots: loaded}, s.logs, failStop{s.disk}, loaded, transport); err != nil {
		transport.Close()
		return explainLoad(dir, loaded.err, err)
	}
	term := s.raft.CurrentTerm
	transport.term.Store(&term)
	s.disk.serving.Store(true)
	return nil
}

// explainLoad says which of the files that Raft starts from cannot be used, and what an operator can do; raft
// itself says that on lines before. unread is why a snapshot could not be read, which it names.
func explainLoad(dir string, unread, err error) error {
	const advice = "give the node an empty data directory and let it join again"
	snapshots := filepath.Join(dir, "snapshots")
	if unread != nil && cannotRead(unread) {
		return fmt.Errorf("read the snapshot %s (%w)", filepath.Join(snapshots, unread.Error()), err)
	}
	if unread != nil {
		return fmt.Errorf("the snapshot %s is damaged (%w; %w): %s", filepath.Join(snapshots, unread.Error()), disk.ErrDamaged, err, advice)
	}
	metas, _ := filepath.Glob(filepath.Join(snapshots, "*"))
	for _, path := range metas {
		meta := filepath.Join(path, "meta.json")
		b, readErr := os.ReadFile(meta)
		if cannotRead(readErr) {
			return fmt.Errorf("%w (%w)", readErr, err)
		}
		if readErr == nil && !json.Valid(b) {
			readErr = errors.New("it is not JSON")
		}
		if readErr != nil {
			return fmt.Errorf("the snapshot %s is damaged (%w: %w; %w): %s", meta, disk.ErrDamaged, readErr, err, advice)
		}
	}
	return fmt.Errorf("load %s: %w (if snapshots were removed there: %s)", dir, err, advice)
}

// cannotRead says that the operating system did not let a file be read, which says nothing of what it holds. One
// that is missing is damage.
func cannotRead(err error) bool { return disk.IsOfSystem(err) && !errors.Is(err, fs.ErrNotExist) }

func (s *Raft) transportConfig(logger hclog.Logger) *raft.NetworkTransportConfig {
	conf := &raft.NetworkTransportConfig{
		Logger:          logger,
		Stream:          s.net,
		MaxPool:         3,
		MaxRPCsInFlight: 2, // docs/adr/0003: fail-stop on disk errors makes pipelining safe
		Timeout:         transportTimeout,
	}
	if len(s.cfg.Test.Dial) > 0 {
		conf.ServerAddressProvider = dialProvider{s}
	}
	return conf
}

// newRaft is raft.NewRaft; a log that lacks what the snapshots need is an error, not a panic.
func newRaft(conf *raft.Config, state raft.FSM, logs raft.LogStore, stable raft.StableStore, snaps raft.SnapshotStore, t raft.Transport) (r *raft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", disk.ErrDamaged, p)
		}
	}()
	return raft.NewRaft(conf, state, logs, stable, snaps, t)
}

// dialProvider tells Raft's transport where to dial a server, where addresses are overridden.
type dialProvider struct{ s *Raft }

// ServerAddr implements raft.ServerAddressProvider; an error makes Raft take the address that the
// cluster's configuration holds.
func (d dialProvider) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if o, ok := d.s.cfg.Test.Dial[nameOf(string(id))]; ok {
		return raft.ServerAddress(o), nil
	}
	if id == raft.ServerID(d.s.id.ServerID) {
		return raft.ServerAddress(d.s.net.Addr().String()), nil
	}
	return "", fmt.Errorf("test.dial does not name %q", nameOf(string(id)))
}
