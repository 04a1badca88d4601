package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DefaultRefreshInterval is the time between two fetches (upstream's
// eureka.client.registryFetchIntervalSeconds).
const DefaultRefreshInterval = 30 * time.Second

// longestInterval bounds DiscoveryConfig.Interval.
const longestInterval = 24 * time.Hour

// Ways to keep a list up to date.
const (
	// RefreshAuto watches where the server is Rollcall, and fetches deltas where it is not. It finds out
	// by itself, and again after each failover.
	RefreshAuto RefreshMode = iota
	// RefreshDelta fetches everything once, then deltas, whose hash it checks; everything again where
	// the hash does not fit or the server has no deltas.
	RefreshDelta
	// RefreshFull fetches everything each time (upstream's eureka.client.disableDelta).
	RefreshFull
)

// RefreshMode is a way to keep a list up to date.
type RefreshMode uint8

// DiscoveryConfig says what to discover and how. The zero DiscoveryConfig has a default for each field.
type DiscoveryConfig struct {
	App string // of one application, in any case, which is cheaper than all; "": all
	// Mode is how the list is kept up to date.
	Mode RefreshMode
	// Interval is the time between two fetches, 24 h at most. Failures double it, with jitter, up to ten
	// times that (upstream's cacheRefreshExecutorExponentialBackOffBound), but another server is tried at
	// once. Until a server gave a list, and while a watch is cut, the pauses are shorter: 100 ms at first,
	// 5 s at most, and everything is asked for again once per Interval while no server can be watched.
	// 0: DefaultRefreshInterval.
	Interval time.Duration
	// Guard keeps a suddenly empty answer from emptying the list.
	Guard Guard
	// File keeps the last list on disk, so that a process that starts while no server answers begins
	// with it. It is written after changes, once per Interval at most, and at the end. "": it is not kept.
	File string
	// OnChange is called as that of Discovery.OnChange is, from the first list on. Nil: nothing is.
	OnChange func(old, new *Snapshot)
}

// Validate reports every mistake at once.
func (c DiscoveryConfig) Validate() error {
	errs := []error{c.Guard.Validate()}
	if c.Mode > RefreshFull {
		errs = append(errs, fmt.Errorf("mode %d is not RefreshAuto, RefreshDelta or RefreshFull", c.Mode))
	}
	if c.Interval < 0 || c.Interval > longestInterval {
		errs = append(errs, fmt.Errorf("interval %v is not between 0 and %v", c.Interval, longestInterval))
	}
	return errors.Join(errs...)
}

// Discovery is a list of instances that is kept up to date in the background: what is asked of it is
// answered from memory, also while no server can be reached. Safe for concurrent use.
type Discovery struct {
	client *Client
	config DiscoveryConfig // with its defaults
	list   atomic.Pointer[Snapshot]
	ready  chan struct{} // closed when there is a list
	quit   context.CancelFunc
	ended  chan struct{} // closed when its goroutines have ended, but for those that call

	mu          sync.Mutex
	status      DiscoveryStatus // but for Age
	asOf        time.Time       // when the list was known to be up to date; zero: there is none
	closed      bool
	subscribers map[*subscriber]struct{}
}

// StartDiscovery starts to keep a list, until Discovery.Close or Client.Close. It does not wait: Ready
// does. The error joins every mistake of the configuration, or is ErrClosed.
func (c *Client) StartDiscovery(config DiscoveryConfig) (*Discovery, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("start a discovery: %w", err)
	}
	config.App = strings.ToUpper(config.App)
	config.Interval = cmp.Or(config.Interval, DefaultRefreshInterval)
	d := &Discovery{
		client:      c,
		config:      config,
		ready:       make(chan struct{}),
		ended:       make(chan struct{}),
		status:      DiscoveryStatus{Source: SourceNone},
		subscribers: make(map[*subscriber]struct{}),
	}
	d.list.Store(new(Snapshot))
	ctx, quit := context.WithCancel(c.life)
	d.quit = quit
	if err := c.adopt(d); err != nil {
		quit()
		return nil, fmt.Errorf("start a discovery: %w", err)
	}
	if config.OnChange != nil {
		d.OnChange(config.OnChange)
	}
	go d.run(ctx)
	return d, nil
}

// run keeps the list, and its file, until ctx ends.
func (d *Discovery) run(ctx context.Context) {
	defer close(d.ended)
	r := newRefresher(d)
	if d.config.File == "" {
		r.run(ctx)
		return
	}
	r.file = newListFile(d)
	r.restore()
	saving, done := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() { r.file.run(saving) })
	r.run(ctx)
	done()
	g.Wait()
}

// Ready waits until there is a list, of a server or from DiscoveryConfig.File. The error is ErrClosed,
// or why ctx ended together with what failed last.
func (d *Discovery) Ready(ctx context.Context) error {
	select {
	case <-d.ready:
	case <-d.ended:
	case <-ctx.Done():
	}
	switch {
	case isClosed(d.ready):
		return nil
	case isClosed(d.ended):
		return ErrClosed
	}
	if failed := d.Status().Err; failed != nil {
		return fmt.Errorf("wait for the list of instances: %w: %w", context.Cause(ctx), failed)
	}
	return fmt.Errorf("wait for the list of instances: %w", context.Cause(ctx))
}

// Snapshot returns the present list, which is empty until Ready.
func (d *Discovery) Snapshot() *Snapshot { return d.list.Load() }

// Age is for how long the list has not been known to be up to date: since the last good fetch was sent,
// or, while a server is watched, since it was heard of last (it says something every 15 s). A list from
// DiscoveryConfig.File is as old as that. 0 until Ready.
func (d *Discovery) Age() time.Duration { return d.Status().Age }

// Sources of a list.
const (
	SourceNone  = "none" // there is no list yet
	SourceFile  = "file" // DiscoveryConfig.File
	SourceFetch = "fetch"
	SourceWatch = "watch"
)

// DiscoveryStatus is what a Discovery does at present.
type DiscoveryStatus struct {
	Source string        // of the list: one of the Sources
	Server string        // URL of the server that it came from; "": of none
	Index  string        // the version of a Rollcall server's registry, as X-Rollcall-Index; "": not known
	Age    time.Duration // as Age
	Held   int           // instances that the Guard keeps
	Err    error         // why the last refresh failed; nil: it did not
}

// Status returns what it does at present.
func (d *Discovery) Status() DiscoveryStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	status := d.status
	if !d.asOf.IsZero() {
		status.Age = max(0, time.Since(d.asOf)) // a file may be of a clock that was ahead
	}
	return status
}

// Close ends the Discovery. Its list can be asked for afterwards, and stays as it is. Close waits for
// what is under way, functions that are told of a change included (they must not call it), until ctx ends,
// which is the only error; it may be called more than once.
func (d *Discovery) Close(ctx context.Context) error {
	defer d.client.drop(d)
	return d.stop(ctx)
}

// stop implements part.
func (d *Discovery) stop(ctx context.Context) error {
	d.quit()
	callers := d.unsubscribe()
	if err := await(ctx, d.ended, "wait for the discovery to end"); err != nil {
		return err
	}
	for _, s := range callers {
		if err := await(ctx, s.ended, "wait for a function that was told of a change"); err != nil {
			return err
		}
	}
	return nil
}

// leave implements part: no server knows of a Discovery.
func (d *Discovery) leave(context.Context) error { return nil }

// gauges implements gauger.
func (d *Discovery) gauges(emit func(desc *prometheus.Desc, value float64, labels ...string)) {
	status := d.Status()
	emit(listAge, status.Age.Seconds(), d.config.App)
	emit(listInstances, float64(d.Snapshot().Len()), d.config.App)
	emit(listHeld, float64(status.Held), d.config.App)
}
