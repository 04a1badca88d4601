package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
)

func newServerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run one node",
		Long: "Runs one node until SIGTERM or Ctrl-C. Every flag but --config is a key of the file with dashes\n" +
			"for dots, and an environment variable too; docs/operations.md lists them. Order: flag,\n" +
			"environment, file, default.",
		Example: "  rollcall server --data-dir /var/lib/rollcall\n" +
			"  rollcall server --config /etc/rollcall.yaml",
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := loadSettings(fromProcess(cmd.Flags()))
			if err != nil {
				return usageError{err}
			}
			ctx, cancel := untilParentEnds(cmd.Context(), os.LookupEnv, cmd.InOrStdin())
			defer cancel()
			return runServer(ctx, s.Config, newLogger(cmd.ErrOrStderr(), s.Log))
		},
	}
	addConfigFlags(cmd.Flags())
	return cmd
}

// runServer runs a node until ctx ends or the node must not go on.
func runServer(ctx context.Context, c *Config, log *slog.Logger) error {
	setGC(c.GC)
	n, err := openNode(c, log)
	if err != nil {
		return err
	}
	return n.run(ctx)
}

// Bounds of a shutdown. Requests take milliseconds, unless the cluster is in trouble; the store
// hands over leadership and saves a snapshot, both of which it may be unable to do.
const (
	drainWithin = 2 * time.Second
	closeWithin = 7 * time.Second
)

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
		return fatalError{fmt.Errorf("the node stopped, because going on could lose data: %w", err)}
	case err := <-served:
		n.closeListeners()
		stopStore()
		return errors.Join(err, awaitStore(stored))
	case <-ctx.Done():
	}
	n.log.Info("shutting down")
	n.draining.Store(true)
	n.drain()
	stopStore()
	return awaitStore(stored)
}

// awaitStore gives up in the end: a crash is something that the data directory survives.
func awaitStore(stored <-chan error) error {
	timer := time.NewTimer(closeWithin)
	defer timer.Stop()
	select {
	case err := <-stored:
		return err
	case <-timer.C:
		return fmt.Errorf("the store did not close within %v", closeWithin)
	}
}

// drain stops accepting and waits for the requests under way. The store still answers them.
func (n *node) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), drainWithin)
	defer cancel()
	for _, l := range n.listeners {
		if err := l.server.Shutdown(ctx); err != nil {
			n.log.Warn("requests were cut off", "listener", l.key, "err", err)
			l.server.Close()
		}
	}
}

func (n *node) closeListeners() {
	for _, l := range n.listeners {
		l.server.Close()
	}
}

// listener is a bound port and the server behind it.
type listener struct {
	key string // the setting that names its address
	net.Listener
	server *http.Server
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
	if l.server.TLSConfig != nil {
		err = l.server.ServeTLS(l.Listener, "", "")
	} else {
		err = l.server.Serve(l.Listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("%s: %w", l.key, err)
}
