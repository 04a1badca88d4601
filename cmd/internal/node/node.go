package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/capacity"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd"
)

// node is the parts of one server, opened and wired, nothing of it running yet.
type node struct {
	log         *slog.Logger
	metrics     *prometheus.Registry
	disk        *capacity.Disk
	runStore    func(context.Context) error // see engine.run
	listeners   []listener                  // the first one serves the HTTP API
	connections *httpd.Connections          // of the HTTP API
	handler     *httpd.Handler              // of the HTTP API
	draining    *atomic.Bool                // set when the node shuts down: it is not ready any more
	limits      shutdownLimits
	apply       func(*config.Config) // takes over what can change while the node runs (see reloaded)
}

// open binds the ports first: they fail at once, and before the data directory was touched.
func open(c *config.Config, version string, log *slog.Logger) (_ *node, err error) {
	name, err := c.Name()
	if err != nil {
		return nil, cli.Usage(err)
	}
	n := &node{log: log.With("node", name), draining: new(atomic.Bool), limits: defaultShutdownLimits()}
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
	metrics := newMetrics()
	n.metrics = metrics
	port, err := n.openHTTP(c, metrics)
	if err != nil {
		return nil, err
	}
	if err := n.openProfiler(c.PProfAddr); err != nil {
		return nil, err
	}
	s := setup{Config: c, name: name, http: cmp.Or(c.HTTP.Advertise, port.Addr().String()), log: n.log, metrics: metrics}
	s.own = []string{s.http, c.HTTP.Addr, port.Addr().String()}
	n.disk = &capacity.Disk{Dir: c.Store.DataDir, Least: c.MinFree, Log: n.log}
	s.diskFull = n.disk.Low
	e, err := s.openEngine()
	if err != nil {
		return nil, err
	}
	n.disk.LeaderLow = e.leaderDiskFull
	n.disk.Measure()
	metrics.MustRegister(n.disk.Metrics()...)
	n.runStore = func(ctx context.Context) error { return together(ctx, e.run, n.disk.Run, new(idleMemory).run) }
	e.service, e.coordination = capacity.Limit(n.disk, &c.Quota, e.service, e.coordination)
	return n, n.handle(c, name, version, e)
}

// openHTTP binds the HTTP port; handle says later what is served on it.
func (n *node) openHTTP(c *config.Config, metrics prometheus.Registerer) (net.Listener, error) {
	pair, err := openHTTPCertificate(&c.HTTP.TLS, func(err error) { n.log.Warn("the changed certificate cannot be used", "err", err) })
	if err != nil {
		return nil, err
	}
	server := httpd.NewServer(c.HTTP.Addr, nil, n.log)
	if pair != nil {
		metrics.MustRegister(pair.expiry())
		if server.TLSConfig, err = tlsConfig(&c.HTTP.TLS, pair); err != nil {
			return nil, err
		}
	}
	l, err := listen("http.addr", c.HTTP.Addr)
	if err != nil {
		return nil, err
	}
	n.connections = httpd.NewConnections(c.HTTPD.Limits.Connections, c.HTTPD.Limits.PerAddress, metrics)
	server.ConnState = n.connections.State
	n.listeners = append(n.listeners, listener{key: "http.addr", Listener: n.connections.Listener(l), server: server})
	return l, nil
}

// handle puts the routes behind the HTTP port.
func (n *node) handle(c *config.Config, name, version string, e *engine) error {
	h := httpConfig(c)
	h.Node, h.Version, h.Log, h.Metrics = name, version, n.log, n.metrics
	h.Service, h.Cluster, h.Members = drainingService{e.service, n.draining}, e.cluster, e.members
	h.Peers, h.EurekaSender = e.peers, e.peers.replicator.EurekaSender
	h.Coordination = e.coordination
	handler, err := httpd.New(h)
	if err != nil {
		return err
	}
	n.apply = func(c *config.Config) {
		handler.SetRateLimit(c.HTTPD.RateLimit)
		e.setSyncDelay(c.Store.Test.SyncDelay)
	}
	n.handler = handler
	n.listeners[0].server.Handler = handler
	n.listeners[0].server.RegisterOnShutdown(handler.EndWatches) // they would outlast any patience
	if c.HTTP.HeartbeatTakeover {
		n.listeners[0].handler = handler
	}
	return nil
}

func (n *node) closePorts() {
	for _, l := range n.listeners {
		l.Close()
	}
}

func newMetrics() *prometheus.Registry {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return metrics
}

// httpConfig is the settings of the HTTP API, those included that other settings decide.
func httpConfig(c *config.Config) httpd.Config {
	h := c.HTTPD
	h.Datacenter, h.Hosts = c.Datacenter, c.HTTP.Served()
	h.WithoutConsensus = c.Mode == config.AP
	if !h.WithoutConsensus {
		h.WaitWhenEmpty = 0 // the cluster knows what there is
	}
	if c.Checks.Probes {
		h.RefuseProbe = c.Checks.Rules.Refuses
	}
	return h
}
