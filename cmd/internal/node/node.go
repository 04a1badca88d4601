// Package node assembles a node and runs it: the store in one of its two modes, the listeners, what a leader does
// beside the store, and what happens when settings, certificates or the disk change. It holds no rule of the
// registry, and knows the command line only through its settings.
//
//	node.go         the parts of a node, and how they are opened
//	run.go          how a node starts, serves and ends
//	engine.go       the store with what works beside it, with consensus and without
//	peers.go        the replicator, as the HTTP API sees it: calls about peers go to the node that sends
//	cluster.go      the nodes of the datacenter, as the HTTP API sees them
//	listener.go     a port and the server behind it; the profiler's
//	metrics.go      metrics of the program, the limits and, on the leader, the cluster
//	debug.go        a bundle for finding out what is wrong
//	notify.go       tells the service manager how the node is
//	reload.go       settings that are read again at SIGHUP
//	snapshots.go, localsnapshots.go, backups.go, recover.go
//	                snapshots for people: by HTTP, on a schedule, and recovery
//	limit.go        refuses what clients want to add beyond the room that there is: by disk.go, which measures the
//	                disk; quota.go, the limits on what is stored; names.go, new names with invisible characters
//	memory.go       garbage collection, and memory that an idle node gives back
//	planted.go      what tests of the comparison replace, to plant faults
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/audit"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/world"
	"github.com/seed-20419f34/rollcall/store"
)

// Options say how a node is run. All fields are required.
type Options struct {
	Config  *config.Config
	Load    func() (config.Loaded, error) // reads the settings again, after SIGHUP
	Version string                        // of the program
	Log     *slog.Logger
	Level   *LogLevel            // of Log
	Metrics prometheus.Collector // of the process, shown beside the node's
	// Settings writes the settings as they were read, without secrets, and LogTail returns the last lines of the log:
	// both for bundles.
	Settings func(io.Writer) error
	LogTail  func() []byte
	World    *world.World     // nil means the real machine
	Hangups  <-chan os.Signal // receives SIGHUP; may be nil
}

// node holds the parts of one server, opened and wired. Nothing runs before run.
type node struct {
	world       *world.World
	log         *slog.Logger
	metrics     *prometheus.Registry
	disk        *diskMeter
	runStore    func(context.Context) error // see engine.run
	listeners   []listener                  // the first one serves the HTTP API
	connections *httpd.Connections          // of the HTTP API
	handler     *httpd.Handler              // of the HTTP API
	notify      *notifier                   // nil if the node serves no API, as in some tests
	audit       *audit.Log                  // nil if the node serves no API, as in some tests
	limits      shutdownLimits
	handOver    func() // hands leadership over, if the node has it
	// shutdownDelay is a time.Duration that SIGHUP can change.
	shutdownDelay atomic.Int64
	quota         atomic.Pointer[config.Quota]
	certificates  []*certfiles.Source       // of all but the store
	auth          *config.AuthFile          // of auth.file; may be nil
	reread        func() (changed []string) // reads files that settings name again
	apply         func(*config.Config)      // applies the settings that can change while the node runs (see reloader)
}

// open opens and wires the parts of a node. It binds the ports first, so that a port in use fails the start before
// the data directory is touched.
func open(o Options) (_ *node, err error) {
	c := o.Config
	name, err := c.Name()
	if err != nil {
		return nil, cli.Usage(err)
	}
	n := &node{world: o.World, log: o.Log.With("node", name), limits: defaultShutdownLimits(), handOver: func() {}}
	defer func() {
		if err == nil {
			return
		}
		n.closePorts()
		if n.runStore != nil {
			err = errors.Join(err, abandon(n.runStore))
		}
	}()
	c.Warn(n.log)
	n.metrics = newMetrics(o.Version, c.Mode)
	if err := n.openAuthFile(c.Auth.File); err != nil {
		return nil, err
	}
	port, err := n.openHTTP(c)
	if err != nil {
		return nil, err
	}
	if err := n.openProfiler(c.PProfAddr); err != nil {
		return nil, err
	}
	s := setup{Config: c, name: name, version: o.Version, world: o.World, http: cmp.Or(c.HTTP.Advertise, port.Addr().String()), log: n.log, metrics: n.metrics}
	s.addresses = []string{s.http, c.HTTP.Addr, port.Addr().String()}
	n.disk = &diskMeter{Dir: c.Store.DataDir, Least: c.MinFree, Log: n.log}
	s.disk, s.auth = n.disk, n.auth
	e, err := s.openEngine()
	if err != nil {
		return nil, err
	}
	if e.raft != nil {
		n.handOver, n.disk.LeaderLow = e.raft.HandOver, e.raft.LeaderDiskFull
	}
	n.disk.Measure()
	n.metrics.MustRegister(n.disk.Metrics()...)
	if files := e.peers.files; files != nil {
		n.certificates = append(n.certificates, files)
		if files.Certificate() != nil { // otherwise they have only authorities
			n.metrics.MustRegister(certfiles.ExpiryGauge("replication", files))
		}
	}
	n.notify = &notifier{readiness: func() (bool, string) { return n.handler.Readiness() }, alive: e.store.Alive, log: n.log}
	n.metrics.MustRegister(&bounds{service: e.service, coordination: e.coordination})
	beside := []func(context.Context){n.disk.Run, new(idleMemory).run, n.notify.run}
	for _, files := range n.certificates {
		beside = append(beside, files.Run)
	}
	if n.auth != nil {
		beside = append(beside, n.auth.Run)
	}
	n.runStore = func(ctx context.Context) error { return runWith(ctx, e.run, beside...) }
	e.service, e.coordination = limitAdditions(n.disk, &n.quota, e.service, e.coordination, n.metrics)
	return n, n.handle(o, name, e)
}

// openAuthFile reads the file of roles and tokens; "" names none.
func (n *node) openAuthFile(path string) (err error) {
	if path == "" {
		return nil
	}
	if n.auth, err = config.OpenAuthFile(path, n.log); err != nil {
		return fmt.Errorf("auth.file: %w", err)
	}
	n.metrics.MustRegister(n.auth.Metrics())
	return nil
}

// openHTTP binds the HTTP port; handle adds the routes.
func (n *node) openHTTP(c *config.Config) (net.Listener, error) {
	files, err := c.HTTP.TLS.Open(n.log)
	if err != nil {
		return nil, err
	}
	server := httpd.NewServer(c.HTTP.Addr, nil, n.log)
	if files != nil {
		n.metrics.MustRegister(certfiles.ExpiryGauge("http", files))
		n.certificates = append(n.certificates, files)
		server.TLSConfig = files.Server("h2", "http/1.1")
	}
	l, err := n.listen("http.addr", c.HTTP.Addr)
	if err != nil {
		return nil, err
	}
	n.connections = httpd.NewConnections(c.HTTPD.Limits.Connections, c.HTTPD.Limits.PerAddress, n.metrics)
	server.ConnState = n.connections.State
	n.listeners = append(n.listeners, listener{key: "http.addr", Listener: n.connections.Listener(l), server: server})
	return l, nil
}

// handle puts the routes behind the HTTP port.
func (n *node) handle(o Options, name string, e *engine) error {
	c := o.Config
	h := httpConfig(c)
	h.Node, h.Version, h.World, h.Log, h.Metrics = name, o.Version, n.world, n.log, n.metrics
	h.ScrapeErrors = store.NewPanics(n.log, n.metrics)
	h.Service, h.Cluster, h.Members, h.Upgrade = e.service, e.cluster, e.members, e.upgrade
	h.Peers, h.EurekaSender, h.EurekaRefused = e.peers, e.peers.replicator.EurekaSender, e.peers.replicator.Refusals().Record
	h.Coordination, h.Snapshots, h.LogLevel = e.coordination, e.snapshots, logLevel{o.Level, n.world}
	if c.Checks.Probes {
		h.JudgeProbe = e.rules.Refuses
	}
	var err error
	if n.audit, err = openAudit(c, n.log); err != nil {
		return err
	}
	h.Audit, h.Access = n.audit, n.accessConfig(c, name, e)
	h.Debug = bundler{n.world, n.metrics, o.Version, o.Settings, o.LogTail, func(ctx context.Context) any { return e.cluster.Status(ctx) }}
	handler, err := httpd.New(h)
	if err != nil {
		return err
	}
	n.metrics.MustRegister(insecure{c, handler.AuthMode}, limits{n, e})
	n.apply = func(c *config.Config) {
		handler.SetRateLimit(c.HTTPD.RateLimit)
		handler.SetLimits(c.HTTPD.Limits)
		n.connections.SetLimits(c.HTTPD.Limits.Connections, c.HTTPD.Limits.PerAddress)
		n.quota.Store(new(c.Quota))
		e.snapshots.limits.Store(&restoreLimits{stateBytes: c.Quota.StateBytes, instances: c.HTTPD.Limits.InstancesTotal, room: n.disk.Room})
		if e.raft != nil {
			e.raft.Members().SetJoin(c.Store.Join)
		}
		if err := e.peers.replicator.SetPeers(e.peers.configured(c)); err != nil { // though Validate has found no mistake
			n.log.Error("the peers stay as they were", "err", err)
		}
		o.Level.Configure(c.LogLevel)
		e.store.SetSyncDelay(c.Store.Test.SyncDelay)
		n.shutdownDelay.Store(int64(c.ShutdownDelay))
	}
	n.apply(c)
	n.reread = func() []string {
		var changed []string
		for _, files := range n.certificates {
			changed = append(changed, files.Reload()...)
		}
		if n.auth != nil && n.auth.Reload() {
			changed = append(changed, "auth.file")
		}
		if e.raft != nil {
			changed = append(changed, e.raft.ReloadCertificates()...)
		}
		return changed
	}
	n.handler = handler
	n.listeners[0].server.Handler = handler
	n.listeners[0].server.RegisterOnShutdown(handler.EndWatches) // they would not end otherwise
	if c.HTTP.HeartbeatTakeover {
		n.listeners[0].handler = handler
	}
	return n.openAdmin(c.Store.DataDir, handler)
}

// accessConfig says where roles and tokens come from. Changes of auth.file go into the audit.
func (n *node) accessConfig(c *config.Config, name string, e *engine) web.AccessConfig {
	a := web.AccessConfig{Floor: c.Floor(), TokenInQuery: c.Auth.TokenInQuery}
	if e.raft != nil {
		a.Table, a.Cluster = e.raft.Access, e.raft.ClusterID
	}
	a.Lacks = func(mode access.Mode) (warnings []string) {
		for _, lack := range c.Insecure(mode) {
			warnings = append(warnings, lack.Warning)
		}
		return warnings
	}
	if n.auth != nil {
		a.File, a.FileFailure = n.auth.Table, n.auth.Failure
		n.auth.Changed = func(old, now *access.Table) { n.audit.Record(authFileRecord(n.world.Now(), name, old, now)) }
	}
	return a
}

// openAudit opens the audit, by default in the data directory, which belongs to this node alone.
func openAudit(c *config.Config, log *slog.Logger) (*audit.Log, error) {
	a := c.Audit
	if a.File != audit.Standard && !filepath.IsAbs(a.File) {
		a.File = filepath.Join(c.Store.DataDir, a.File)
	}
	return audit.Open(a, os.Stdout, log)
}

// closePorts releases the ports of a node that will not run.
func (n *node) closePorts() {
	for _, l := range n.listeners {
		l.Close()
	}
}

// httpConfig returns the settings of the HTTP API, including those that other settings decide.
func httpConfig(c *config.Config) httpd.Config {
	h := c.HTTPD
	h.Datacenter, h.Hosts, h.Host = c.Datacenter, c.HTTP.Served(), c.Host()
	h.WithoutConsensus, h.ConnectionLife = c.Mode == config.AP, c.Store.Test.ConnectionLife
	if !h.WithoutConsensus {
		h.WaitWhenEmpty = 0 // an empty registry is what the cluster has agreed on
	}
	return h
}
