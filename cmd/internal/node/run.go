package node

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// Run runs a node until ctx ends or the node must not go on.
func Run(ctx context.Context, o Options) error {
	if percent := o.Config.GCPercent; percent > 0 {
		// A registry has much live data and little garbage per request, so collections cost more than the memory
		// between them.
		debug.SetGCPercent(percent)
	}
	n, err := open(o)
	if err != nil {
		return err
	}
	n.metrics.MustRegister(o.Metrics)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		n.audit.Flush(ctx)
	}()
	r := reloader{load: o.Load, apply: n.apply, reread: n.reread, notify: n.notify, log: n.log, running: *o.Config}
	err = r.during(ctx, o.Hangups, n.run)
	if err != nil {
		n.notify.fail(err)
	}
	return err
}

// shutdownLimits bounds the steps of a shutdown, together below the 10 s after which service managers and dev kill
// the process.
type shutdownLimits struct {
	handover time.Duration // for leadership; the store enforces it
	linger   time.Duration // until every client that sends one request after the other has had a last response
	drain    time.Duration // for requests in progress: they take milliseconds, unless the cluster is in trouble
	store    time.Duration // to save a snapshot, which may be impossible
	late     time.Duration // for requests in progress that fail only when the store ends
}

func defaultShutdownLimits() shutdownLimits {
	return shutdownLimits{handover: 2 * time.Second, linger: 250 * time.Millisecond, drain: 2 * time.Second, store: 5 * time.Second, late: 250 * time.Millisecond}
}

// total returns how long after the serving time the node ends.
func (l shutdownLimits) total() time.Duration {
	return l.handover + l.linger + l.drain + l.store + l.late
}

// run serves until ctx ends (nil, or an error if the shutdown failed) or a part of the node fails.
func (n *node) run(ctx context.Context) error {
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	stored := make(chan error, 1)
	go func() { stored <- n.runStore(storeCtx) }()
	defer n.watch(storeCtx)()
	served := make(chan error, len(n.listeners))
	for _, l := range n.listeners {
		go func() { served <- l.serve() }()
	}
	stopping := ctx.Done()
	var servedOn <-chan time.Time
	for serving := true; serving; {
		select {
		case err := <-stored:
			return n.storeEnded(err)
		case err := <-served:
			n.closeListeners()
			stopStore()
			return errors.Join(err, n.awaitStore(stored))
		case <-stopping:
			stopping = nil
			servedOn = time.After(n.turnAway())
		case <-servedOn:
			serving = false
		}
	}
	n.handOver()
	n.linger(n.limits.linger)
	late := n.drain(n.limits.drain) != nil
	stopStore()
	err := n.awaitStore(stored)
	if late {
		n.finishRequests()
	}
	return err
}

// watch keeps ready what the dashboard shows, until ctx ends. The returned function ends it, and waits for that.
func (n *node) watch(ctx context.Context) (end func()) {
	if n.handler == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { _ = n.handler.Run(ctx) }) // it ends with ctx, without an error
	return func() {
		cancel()
		watching.Wait()
	}
}

// storeEnded closes the listeners of a node whose store must not go on, and says why.
func (n *node) storeEnded(err error) error {
	n.closeListeners()
	if errors.Is(err, disk.ErrDamaged) { // the same error as at a start
		return err
	}
	return cli.Fatal(fmt.Errorf("the node stopped, because going on could lose data: %w", err))
}

// turnAway makes the node unready and every response the last one on its connection. It returns how long the node
// keeps serving.
func (n *node) turnAway() time.Duration {
	delay := time.Duration(n.shutdownDelay.Load())
	n.log.Info("shutting down", "shutdown-delay", delay)
	if n.handler != nil { // otherwise the node serves no API, as in some tests
		n.handler.Drain()
		n.notify.stop(delay + 2*n.limits.total())
	}
	return delay
}

// linger waits until every connection has had its last response, or for limit. Without it a request in flight on a
// connection that is being closed would fail.
func (n *node) linger(limit time.Duration) {
	if n.handler == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for n.connections.Count() > 0 && ctx.Err() == nil {
		wait.Pause(ctx, nil, max(limit/50, time.Millisecond))
	}
}

// finishRequests waits for the requests that the end of the store has completed, and cuts off the others.
func (n *node) finishRequests() {
	if err := n.drain(n.limits.late); err != nil {
		n.log.Warn("requests were cut off", "err", err)
		n.closeListeners()
	}
}

// awaitStore waits for the end of the store, within a limit: the data directory survives a crash.
func (n *node) awaitStore(stored <-chan error) error {
	select {
	case err := <-stored:
		return err
	case <-time.After(n.limits.store):
		return fmt.Errorf("the store did not close within %v", n.limits.store)
	}
}

// drain stops accepting connections and waits for the requests in progress. It cuts none off.
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
