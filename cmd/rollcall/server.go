package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/cmd/localcluster"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/store/disk"
)

func newServerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run one node",
		Long: "Runs one node until SIGTERM or Ctrl-C. Every flag but --config is a key of the file with dashes\n" +
			"for dots, and an environment variable too; docs/operations.md lists them. Order: flag,\n" +
			"environment, file, default. SIGHUP makes it read them again and take over rate-limiter.*\n" +
			"and test.sync-delay.",
		Example: "  rollcall server --data-dir /var/lib/rollcall\n" +
			"  rollcall server --config /etc/rollcall.yaml",
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			load := func() (settings, error) { return loadSettings(fromProcess(cmd.Flags())) }
			s, err := load()
			if err != nil {
				return cli.Usage(err)
			}
			ctx, cancel := localcluster.UntilParentEnds(cmd.Context(), os.LookupEnv, cmd.InOrStdin())
			defer cancel()
			queue := newLogQueue(cmd.ErrOrStderr())
			defer queue.flush(logFlushLimit)
			stdlog.SetOutput(queue) // of libraries that know no better
			return runServer(ctx, s.Config, load, newLogger(queue, s.LogLevel, s.LogFormat), queue.dropped)
		},
	}
	addConfigFlags(cmd.Flags())
	return cmd
}

// runServer runs a node until ctx ends or the node must not go on. load reads the settings again, and what
// figures tells is shown beside the node's.
func runServer(ctx context.Context, c *Config, load func() (settings, error), log *slog.Logger, figures ...prometheus.Collector) error {
	hup, stop := hangups()
	defer stop()
	setGC(c.GCPercent)
	n, err := openNode(c, log)
	if err != nil {
		return err
	}
	n.metrics.MustRegister(figures...)
	r := reloader{load: load, apply: n.apply, log: n.log, running: *c}
	return r.during(ctx, hup, n.run)
}

// shutdownLimits bounds the steps of a shutdown, together below the 10 s after which service
// managers and dev lose patience.
type shutdownLimits struct {
	linger time.Duration // for clients that send one request after the other to be told by an answer that it was the last
	drain  time.Duration // for requests under way: they take milliseconds, unless the cluster is in trouble
	store  time.Duration // to hand over leadership and save a snapshot, both of which may be impossible
	answer time.Duration // for requests that waited until the store answered them by its end
}

func defaultShutdownLimits() shutdownLimits {
	return shutdownLimits{linger: 250 * time.Millisecond, drain: 2 * time.Second, store: 7 * time.Second, answer: 500 * time.Millisecond}
}

// run serves until ctx ends (nil, or an error if the shutdown failed) or a part of the node fails.
func (n *node) run(ctx context.Context) error {
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	stored := make(chan error, 1)
	go func() { stored <- n.runStore(storeCtx) }()
	served := make(chan error, len(n.listeners))
	for _, l := range n.listeners {
		go func() { served <- l.serve() }()
	}
	select {
	case err := <-stored:
		n.closeListeners()
		if errors.Is(err, disk.ErrDamaged) { // as at the start, where it would be refused
			return err
		}
		return cli.Fatal(fmt.Errorf("the node stopped, because going on could lose data: %w", err))
	case err := <-served:
		n.closeListeners()
		stopStore()
		return errors.Join(err, n.awaitStore(stored))
	case <-ctx.Done():
	}
	n.log.Info("shutting down")
	n.draining.Store(true)
	n.linger(n.limits.linger)
	late := n.drain(n.limits.drain) != nil
	stopStore()
	err := n.awaitStore(stored)
	if late {
		n.endRequests()
	}
	return err
}

// linger makes every answer the last one of its connection, and waits until all connections have had it, or
// for limit. A connection that is closed while a request is on its way gives its client an error instead.
func (n *node) linger(limit time.Duration) {
	if n.handler == nil {
		return // it was not opened as a whole
	}
	n.handler.Drain()
	end := time.NewTimer(limit)
	defer end.Stop()
	look := time.NewTicker(max(limit/50, time.Millisecond))
	defer look.Stop()
	for n.connections.Count() > 0 {
		select {
		case <-look.C:
		case <-end.C:
			return
		}
	}
}

// endRequests ends what is under way after the store has answered whoever still waited for it.
func (n *node) endRequests() {
	if err := n.drain(n.limits.answer); err != nil {
		n.log.Warn("requests were cut off", "err", err)
		n.closeListeners()
	}
}

// awaitStore gives up in the end: a crash is something that the data directory survives.
func (n *node) awaitStore(stored <-chan error) error {
	timer := time.NewTimer(n.limits.store)
	defer timer.Stop()
	select {
	case err := <-stored:
		return err
	case <-timer.C:
		return fmt.Errorf("the store did not close within %v", n.limits.store)
	}
}

// drain stops accepting and waits for the requests under way. It cuts none off.
func (n *node) drain(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var errs []error
	for _, l := range n.listeners {
		if err := l.shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.key, err))
		}
	}
	return errors.Join(errs...)
}

func (n *node) closeListeners() {
	for _, l := range n.listeners {
		l.server.Close()
		if l.handler != nil {
			l.handler.Close()
		}
	}
}

// listener is a bound port and the server behind it.
type listener struct {
	key string // the setting that names its address
	net.Listener
	server  *http.Server
	handler *httpd.Handler // takes over connections for heartbeats; nil: none are
}

func (l listener) shutdown(ctx context.Context) error {
	err := l.server.Shutdown(ctx)
	if l.handler != nil {
		err = errors.Join(err, l.handler.Shutdown(ctx))
	}
	return err
}

// listen binds an address. Taken ports are the most frequent reason of a failed start, so the error
// names the key to change.
func listen(key, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot listen on %s: %w", key, addr, err)
	}
	return l, nil
}

// serve returns nil after the server was shut down.
func (l listener) serve() error {
	var err error
	switch {
	case l.server.TLSConfig != nil:
		err = l.server.ServeTLS(l.Listener, "", "")
	case l.handler != nil:
		err = l.handler.Serve(l.server, l.Listener)
	default:
		err = l.server.Serve(l.Listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("%s: %w", l.key, err)
}

// certificate is a key pair in two files that may be replaced at any time.
type certificate struct {
	cert, key string
	// warn is told, once per change, why a changed pair was not taken over.
	warn func(error)

	mu      sync.Mutex
	pair    *tls.Certificate
	changed [2]time.Time // of the files, when they were last looked at
}

// openCertificate reads the pair for the first time; later failures leave the old pair in use.
func openCertificate(cert, key string, warn func(error)) (*certificate, error) {
	c := &certificate{cert: cert, key: key, warn: warn}
	changed, err := c.modified()
	if err != nil {
		return nil, err
	}
	return c, c.read(changed)
}

// get implements tls.Config.GetCertificate. It costs two stats per handshake. Each change of the
// files is looked at once: a pair that is half replaced is read again when its other half changes.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, err := c.modified()
	if changed == c.changed {
		return c.pair, nil
	}
	if err == nil {
		err = c.read(changed)
	}
	c.changed = changed
	if err != nil {
		c.warn(err)
	}
	return c.pair, nil
}

func (c *certificate) read(changed [2]time.Time) error {
	if err := checkKeyFile("http.tls.key", c.key); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.pair, c.changed = &pair, changed
	return nil
}

// modified says when the files changed last; zero times if one cannot be looked at.
func (c *certificate) modified() (at [2]time.Time, err error) {
	for i, path := range []string{c.cert, c.key} {
		info, err := os.Stat(path)
		if err != nil {
			return [2]time.Time{}, err
		}
		at[i] = info.ModTime()
	}
	return at, nil
}

// expiry is a metric: the end of the served certificate, in seconds since the epoch.
func (c *certificate) expiry() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rollcall_http_certificate_expiry_timestamp_seconds",
		Help: "When the certificate of the HTTP listener ends, in seconds since the epoch.",
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(c.pair.Leaf.NotAfter.Unix())
	})
}

// open reads the HTTP listener's certificate; nil if none is configured.
func (c *HTTPTLSConfig) open(warn func(error)) (*certificate, error) {
	if c.Cert == "" {
		return nil, nil
	}
	pair, err := openCertificate(c.Cert, c.Key, warn)
	if err != nil {
		return nil, fmt.Errorf("http.tls.cert and http.tls.key: %w", err)
	}
	return pair, nil
}

// config returns the TLS configuration of the HTTP listener.
func (c *HTTPTLSConfig) config(pair *certificate) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.get}
	if c.ClientCA == "" {
		return config, nil
	}
	pool, err := readPool(c.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("http.tls.client-ca: %w", err)
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, pool
	return config, nil
}

func readPool(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", path)
	}
	return pool, nil
}
