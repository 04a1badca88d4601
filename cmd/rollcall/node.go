package main

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
	"github.com/seed-20419f34/rollcall/httpd"
)

// node is the parts of one server, opened and wired, nothing of it running yet.
type node struct {
	log         *slog.Logger
	metrics     *prometheus.Registry
	room        *room
	runStore    func(context.Context) error // see engine.run
	listeners   []listener                  // the first one serves the HTTP API
	connections *httpd.Connections          // of the HTTP API
	handler     *httpd.Handler              // of the HTTP API
	draining    *atomic.Bool                // set when the node shuts down: it is not ready any more
	limits      shutdownLimits
	apply       func(*Config) // takes over what can change while the node runs (see reloaded)
}

// openNode binds the ports first: they fail at once, and before the data directory was touched.
func openNode(c *Config, log *slog.Logger) (_ *node, err error) {
	name, err := c.name()
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
	c.warn(n.log)
	metrics := newMetrics()
	n.metrics = metrics
	port, err := n.openHTTP(c, metrics)
	if err != nil {
		return nil, err
	}
	if err := n.openProfiler(c.PProfAddr); err != nil {
		return nil, err
	}
	env := engineEnv{name: name, http: cmp.Or(c.HTTP.Advertise, port.Addr().String()), log: n.log, metrics: metrics}
	env.own = []string{env.http, c.HTTP.Addr, port.Addr().String()}
	n.room = &room{dir: c.Store.DataDir, least: c.MinFree, free: freeBytes, log: n.log}
	env.diskFull = n.room.low.Load
	e, err := c.openEngine(env)
	if err != nil {
		return nil, err
	}
	n.room.leader = e.leaderDiskFull
	n.room.look()
	metrics.MustRegister(n.room.figures()...)
	n.runStore = func(ctx context.Context) error { return together(ctx, e.run, n.room.run, new(idleMemory).run) }
	q := quota{&c.Quota, e.service, e.coordination}
	e.service = roomyService{e.service, n.room, q}
	if e.coordination != nil {
		e.coordination = roomyCoordination{e.coordination, n.room, q}
	}
	return n, n.handle(c, name, e, metrics)
}

// openHTTP binds the HTTP port; handle says later what is served on it.
func (n *node) openHTTP(c *Config, metrics prometheus.Registerer) (net.Listener, error) {
	pair, err := c.HTTP.TLS.open(func(err error) { n.log.Warn("the changed certificate cannot be used", "err", err) })
	if err != nil {
		return nil, err
	}
	server := httpd.NewServer(c.HTTP.Addr, nil, n.log)
	if pair != nil {
		metrics.MustRegister(pair.expiry())
		if server.TLSConfig, err = c.HTTP.TLS.config(pair); err != nil {
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
func (n *node) handle(c *Config, name string, e *engine, metrics *prometheus.Registry) error {
	config := c.httpConfig(name, n.log, metrics)
	config.Service, config.Cluster, config.Members = drainingService{e.service, n.draining}, e.cluster, e.members
	config.Peers, config.EurekaSender = e.peers, e.peers.replicator.EurekaSender
	config.Coordination = e.coordination
	handler, err := httpd.New(config)
	if err != nil {
		return err
	}
	n.apply = func(c *Config) {
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

// httpConfig is the settings of the HTTP API, and what is none of them.
func (c *Config) httpConfig(name string, log *slog.Logger, metrics *prometheus.Registry) httpd.Config {
	h := c.HTTPD
	h.Node, h.Datacenter, h.Version, h.Hosts = name, c.Datacenter, version, c.HTTP.served()
	h.Log, h.Metrics = log, metrics
	h.WithoutConsensus = c.Mode == modeAP
	if !h.WithoutConsensus {
		h.WaitWhenEmpty = 0 // the cluster knows what there is
	}
	if c.Checks.Probes {
		h.RefuseProbe = c.Checks.Rules.Refuses
	}
	return h
}
