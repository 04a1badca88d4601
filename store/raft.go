package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// snapshotsKept is how many snapshots stay: should the newest be damaged, an older one and the
// trailing log still give the whole state.
const snapshotsKept = 3

// Bounds of the favours that a node does the others and itself when it leaves.
const (
	handoverLimit = 2 * time.Second
	snapshotLimit = 4 * time.Second
)

// transportTimeout bounds one request of Raft to another node.
const transportTimeout = 10 * time.Second

// fatalClose bounds the attempt to close properly after a fatal error.
const fatalClose = 2 * time.Second

// Raft is the registry in CP mode. It implements registry.Service.
type Raft struct {
	cfg       Config
	log       *slog.Logger
	metrics   *metrics
	id        *identity // as it was at the start: what changes is in standing
	machine   *fsm.Machine
	disk      *disk
	net       *network
	peers     *peers
	raft      *raft.Raft
	loop      *loopWatch
	logs      *logCache
	snapshots raft.SnapshotStore
	clock     leaseClock

	idMu       sync.Mutex               // held while the identity is changed on disk
	standing   atomic.Pointer[identity] // the newest that is on disk
	turn       time.Time                // when this node proposes founders; zero: not considered. Owned by findCluster
	foundRound uint64                   // newest round of a proposal it has heard of. Owned by findCluster

	notify    chan bool                     // Raft's word on this node's leadership
	leader    atomic.Pointer[leaderView]    // who leads, as far as this node knows
	lead      atomic.Pointer[leadership]    // set while this node is the established leader
	foreign   atomic.Pointer[[]ForeignNode] // nodes of other clusters in cluster.join; nil: it has not looked yet
	committed atomic.Pointer[membership]    // newest committed configuration that this node knows of
	changed   broadcast                     // fires when leader or lead changed
	applied   broadcast                     // fires when an entry was applied
	watchers  registry.Watchers             // wait for changes of the registry
	keys      kv.Watchers                   // wait for changes of sessions, keys and locks
	settings  settingsWatch
	reads     *rounds[uint64] // linearizable reads
	indexes   *rounds[uint64] // reads in mode "leader"
	fresh     freshness       // how old the state can be
	terms     atomic.Pointer[terms]
	asking    sync.Map // addresses that a question for the term is open at
	committer *committer
	ready     atomic.Bool
	opened    time.Time
	proposed  atomic.Int64 // UnixNano of the last entry this node proposed
	unsaved   atomic.Bool  // entries were applied after the newest snapshot

	lastRefused atomic.Uint64 // the entry that was last said to have come damaged
	lastDamaged atomic.Uint64 // the entry that was last said to be damaged in memory

	closing   context.Context // ends when the node stops
	stop      context.CancelFunc
	saving    context.Context // ends when a snapshot has no more time to be written
	endSaving context.CancelFunc
	fatal     chan error
	failOnce  sync.Once
}

// OpenRaft opens the data directory and the node-to-node port, and loads what the directory holds.
// Nothing is answered before Run.
func OpenRaft(cfg Config) (*Raft, error) {
	cfg.setDefaults()
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
	cfg.Metrics.MustRegister(preservationGauges{s.leaseTime}, suspendedGauge(s.suspended), coordinationGauges{s})
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
	if s.id, err = openIdentity(s.cfg.DataDir, owner{mode: modeCP, node: s.cfg.Node}); err != nil {
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
	dir := filepath.Join(s.cfg.DataDir, raftDir)
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
		return fmt.Errorf("the snapshot %s is damaged (%w; %w): %s", filepath.Join(snapshots, unread.Error()), ErrDamaged, err, advice)
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
			return fmt.Errorf("the snapshot %s is damaged (%w: %w; %w): %s", meta, ErrDamaged, readErr, err, advice)
		}
	}
	return fmt.Errorf("load %s: %w (if snapshots were removed there: %s)", dir, err, advice)
}

// cannotRead says that the operating system did not let a file be read, which says nothing of what it holds. One
// that is missing is damage.
func cannotRead(err error) bool { return isOfSystem(err) && !errors.Is(err, fs.ErrNotExist) }

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
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return raft.NewRaft(conf, state, logs, stable, snaps, t)
}

// Run serves until ctx ends; it then gives leadership away, saves a snapshot, answers every waiting
// caller and returns nil. A fatal error (of the disk, or a data directory that belongs elsewhere)
// ends it too: this node has then already stopped talking to the others, and the process should end.
func (s *Raft) Run(ctx context.Context) error {
	inner, stop := context.WithCancel(context.Background())
	defer stop()
	var tasks sync.WaitGroup
	s.net.wg.Add(1)
	go s.net.serve()
	for _, task := range []func(context.Context){
		s.watchDisk, s.loop.run, s.watchLog, s.watchLeader, s.followNotify, s.committer.run, s.committer.sweep,
		s.reads.run, s.indexes.run, s.stayFresh, s.becomeReady, s.findCluster,
	} {
		tasks.Go(func() { task(inner) })
	}
	var err error
	select {
	case <-ctx.Done():
		s.leave()
	case err = <-s.fatal:
		s.log.Error("this node stops", "err", err)
	}
	s.stop()
	stop()
	closed := make(chan error, 1)
	go func() {
		tasks.Wait()
		closed <- s.close()
	}()
	if err == nil {
		select {
		case err := <-closed:
			return err
		case err = <-s.fatal: // what it is about may keep the rest from closing
			s.log.Error("this node failed while it stopped", "err", err)
		}
	}
	select {
	case <-closed:
	case <-time.After(fatalClose): // a disk that hangs would keep us for ever
	}
	return err
}

// fail ends the node: the first reason counts. The others must be able to elect before this
// process ends, which a hung disk may prevent, so talking stops first.
func (s *Raft) fail(err error) {
	s.failOnce.Do(func() {
		s.net.fence()
		s.fatal <- err
	})
}

// leave gives leadership away and saves a snapshot, so that the next start is quick. Both are
// favours: if they fail or take too long, the node stops anyway.
func (s *Raft) leave() {
	if s.raft.State() == raft.Leader {
		if err := waitFuture(context.Background(), s.raft.LeadershipTransfer(), handoverLimit); err != nil {
			s.log.Warn("leadership was not handed over", "err", err)
		}
	}
	time.AfterFunc(snapshotLimit, s.endSaving) // Raft's end waits for one that is being written
	if !s.unsaved.Load() {
		return
	}
	if err := waitFuture(context.Background(), later(s.raft.Snapshot), snapshotLimit); err != nil {
		s.log.Info("no snapshot at shutdown", "err", err)
	}
}

// close releases what open took. Callers that still wait are answered by the contexts of Run.
func (s *Raft) close() error {
	s.stop()
	var errs []error
	if s.raft != nil {
		errs = append(errs, s.raft.Shutdown().Error())
	}
	if s.peers != nil {
		s.peers.close()
	}
	if s.net != nil {
		errs = append(errs, s.net.Close())
		s.net.wait()
	}
	if s.disk != nil {
		errs = append(errs, s.disk.close())
	}
	return errors.Join(errs...)
}

// errNoAnswer: nobody knows what became of what was asked for.
var errNoAnswer = errors.New("no answer")

// waitFuture waits for a future of hashicorp/raft, which may never be answered, for at most limit.
func waitFuture(ctx context.Context, f raft.Future, limit time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return fmt.Errorf("%w within %v", errNoAnswer, limit)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
}

// later is a future that one has to wait for to get it: Raft takes the wish for a snapshot when it has done with the
// one before.
type later func() raft.SnapshotFuture

// Error implements raft.Future.
func (l later) Error() error { return l().Error() }

// watchDisk notices calls to the disk that do not return.
func (s *Raft) watchDisk(ctx context.Context) {
	dog := watchdog[diskCall]{limit: hungDisk}
	every(ctx, watchInterval, func(now time.Time) {
		if call, hangs := dog.look(now, s.disk.running()); hangs {
			s.fail(fmt.Errorf("%s takes longer than %v: the disk hangs", call.name, hungDisk))
		}
	})
}

// hello is what this node says of itself.
func (s *Raft) hello() hello {
	return hello{Cluster: s.clusterID(), ServerID: s.id.ServerID, Boot: s.id.Boot, Before: s.id.Before}
}

// stopOutdated ends a node whose data directory is not what the cluster counts on.
func (s *Raft) stopOutdated(err error) {
	s.fail(fmt.Errorf("data directory %s: %w", s.cfg.DataDir, err))
}

// logWatchInterval is how often the size of the log is looked at.
const logWatchInterval = 2 * time.Second

// leastTrailing is how many entries stay behind a snapshot in any case, so that what is next in the log is
// there for a follower that lacks little.
const leastTrailing = 8

// watchLog bounds the log by bytes, which Raft does not: it saves a snapshot when the entries since the last
// one have too many, unless the snapshot would have more, and keeps no more behind it.
func (s *Raft) watchLog(ctx context.Context) {
	every(ctx, logWatchInterval, func(time.Time) { s.trimLog(ctx) })
}

func (s *Raft) trimLog(ctx context.Context) {
	entries, known := s.logs.within(s.cfg.LogBytes)
	trailing := s.cfg.TrailingLogs
	if known {
		trailing = min(trailing, max(entries, leastTrailing))
	}
	if conf := s.raft.ReloadableConfig(); conf.TrailingLogs != trailing {
		conf.TrailingLogs = trailing
		if err := s.raft.ReloadConfig(conf); err != nil {
			s.log.Warn("the bound of the log could not be set", "entries", trailing, "err", err)
		}
	}
	saved, size := s.lastSnapshot()
	if int64(s.logs.after(saved)) <= max(int64(s.cfg.LogBytes), size) {
		return
	}
	if err := waitFuture(ctx, later(s.raft.Snapshot), time.Minute); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) && ctx.Err() == nil {
		s.log.Warn("no snapshot, although the log is large", "err", err)
	}
}

// lastSnapshot is the index of the newest snapshot, and its size in bytes; 0: there is none.
func (s *Raft) lastSnapshot() (index uint64, size int64) {
	found, err := s.snapshots.List()
	if err != nil || len(found) == 0 {
		return 0, 0
	}
	return found[0].Index, found[0].Size
}

func (s *Raft) clusterID() string {
	return s.standing.Load().Cluster
}

// adoptCluster writes down, once and for all, which cluster this node belongs to.
func (s *Raft) adoptCluster(id string) error {
	return s.changeIdentity(func(own *identity) bool {
		own.Cluster, own.Founding = id, Founding{} // what it promised may have come to nothing
		return true
	})
}

// changeIdentity changes the identity on disk, unless do returns false. Only then others see the change:
// meanwhile they see this node as it was, and do not wait for the disk.
func (s *Raft) changeIdentity(do func(*identity) bool) error {
	s.idMu.Lock()
	defer s.idMu.Unlock()
	id := *s.standing.Load()
	if !do(&id) {
		return nil
	}
	if err := id.save(); err != nil {
		return err
	}
	s.standing.Store(&id)
	return nil
}

// becomeReady notices the first linearizable read that this node could have answered: from then on
// it serves at least the state of its start.
func (s *Raft) becomeReady(ctx context.Context) {
	for ctx.Err() == nil {
		changed := s.changed.wait()
		if err := s.announce(ctx); err == nil {
			s.ready.Store(true)
			s.log.Info("ready", "instances", s.machine.View().Len())
			s.settings.note()
			return
		}
		pause(ctx, changed, retryPause)
	}
}

// announce makes sure that the state machine knows this start, so that every node refuses an older copy
// of this node's data directory from now on.
func (s *Raft) announce(ctx context.Context) error {
	if _, err := s.View(ctx, registry.Linearizable); err != nil {
		return err
	}
	if err := s.hello().outdated(s.machine.Boot(s.id.ServerID)); err != nil {
		s.stopOutdated(err)
		return err
	}
	_, err := s.committer.commit(ctx, nil, 0)
	return err
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
