package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// DefaultRefreshInterval is the time between two fetches (upstream's
// eureka.client.registryFetchIntervalSeconds).
const DefaultRefreshInterval = 30 * time.Second

// longestInterval bounds DiscoveryConfig.Interval.
const longestInterval = 24 * time.Hour

// Ways to keep a list up to date.
const (
	// RefreshAuto watches if the server is Rollcall, and fetches deltas if it is not. It finds out which at the
	// start, and again after each failover.
	RefreshAuto RefreshMode = iota
	// RefreshDelta fetches everything once, then deltas, whose hash it checks. It fetches everything again if the
	// hash does not match or the server has no deltas.
	RefreshDelta
	// RefreshFull fetches everything each time (upstream's eureka.client.disableDelta).
	RefreshFull
)

// RefreshMode is a way to keep a list up to date.
type RefreshMode uint8

// DiscoveryConfig says what to discover and how. The zero DiscoveryConfig has a default for each field.
type DiscoveryConfig struct {
	App string // one application, in any case, which is cheaper than all; "" means all
	// Mode is how the list is kept up to date.
	Mode RefreshMode
	// Interval is the time between two fetches, at most 24 h. Failures double it, with jitter, up to ten times that
	// (upstream's cacheRefreshExecutorExponentialBackOffBound), but another server is tried at once. Until a server
	// has returned a list, and while a watch is cut, the pauses are shorter: 100 ms at first, 5 s at most, and
	// everything is fetched again once per Interval while no server can be watched. 0 means DefaultRefreshInterval.
	Interval time.Duration
	// Guard keeps a suddenly empty response from emptying the list.
	Guard Guard
	// File keeps the last list on disk, so that a process that starts while no server responds begins with it. It is
	// written after changes, at most once per Interval, and at the end. "" disables it.
	File string
	// OnChange is called like the function given to Discovery.OnChange, from the first list on. May be nil.
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

// Discovery is a list of instances that is kept up to date in the background: it answers from memory, even while no
// server can be reached. Safe for concurrent use.
type Discovery struct {
	client  *Client
	config  DiscoveryConfig // with its defaults
	app     string          // upper case; "" means all
	list    atomic.Pointer[Snapshot]
	ready   chan struct{} // closed when there is a list
	quit    context.CancelFunc
	stopped chan struct{} // closed when its goroutines have ended, except those of subscribers

	mu          sync.Mutex
	status      DiscoveryStatus // without Age
	asOf        time.Time       // when the list was known to be up to date; zero before the first list
	closed      bool            // no further subscriber is added
	subscribers map[*subscriber]struct{}
}

// StartDiscovery starts to keep a list, until Discovery.Close or Client.Close. It does not wait: Ready does. The
// error joins every mistake in the configuration, or is ErrClosed.
func (c *Client) StartDiscovery(config DiscoveryConfig) (*Discovery, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("start a discovery: %w", err)
	}
	d := newDiscovery(c, config)
	ctx, quit := context.WithCancel(c.cluster.Life())
	d.quit = quit
	if err := c.adopt(d); err != nil {
		quit()
		return nil, fmt.Errorf("start a discovery: %w", err)
	}
	if config.OnChange != nil {
		d.OnChange(config.OnChange)
	}
	go func() {
		defer close(d.stopped)
		d.run(ctx)
	}()
	return d, nil
}

func newDiscovery(c *Client, config DiscoveryConfig) *Discovery {
	config.Interval, config.Guard = cmp.Or(config.Interval, DefaultRefreshInterval), config.Guard.withDefaults()
	d := &Discovery{
		client:      c,
		config:      config,
		app:         strings.ToUpper(config.App),
		ready:       make(chan struct{}),
		stopped:     make(chan struct{}),
		status:      DiscoveryStatus{Source: SourceNone},
		subscribers: make(map[*subscriber]struct{}),
	}
	d.list.Store(new(Snapshot))
	return d
}

// run keeps the list, and its file, until ctx ends.
func (d *Discovery) run(ctx context.Context) {
	r := newRefresher(d)
	if d.config.File == "" {
		r.run(ctx)
		return
	}
	r.file = &saver{
		discovery: d, disk: lastKnown{path: d.config.File}, wake: make(chan struct{}, 1),
		outage: wait.Outage{Log: d.client.log},
	}
	switch list, asOf, err := r.file.disk.load(d.app); {
	case err == nil:
		r.file.saved, r.file.asOf = list, asOf
		r.publish(list)
		r.recordSource(SourceFile, "", asOf)
	case !errors.Is(err, fs.ErrNotExist):
		d.client.log.Warn("the list of instances on disk cannot be used, starting without one", "app", d.app, "err", err)
	}
	saving, done := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() { r.file.run(saving) })
	r.run(ctx)
	done()
	g.Wait()
}

// Ready waits until there is a list, from a server or from DiscoveryConfig.File. The error is ErrClosed, or the
// reason why ctx ended together with the last failure.
func (d *Discovery) Ready(ctx context.Context) error {
	select {
	case <-d.ready:
	case <-d.stopped:
	case <-ctx.Done():
	}
	switch {
	case wait.Closed(d.ready):
		return nil
	case wait.Closed(d.stopped):
		return ErrClosed
	}
	if failed := d.Status().Err; failed != nil {
		return fmt.Errorf("wait for the list of instances: %w: %w", context.Cause(ctx), failed)
	}
	return fmt.Errorf("wait for the list of instances: %w", context.Cause(ctx))
}

// Snapshot returns the current list, which is empty until Ready.
func (d *Discovery) Snapshot() *Snapshot { return d.list.Load() }

// Age returns how long the list has not been known to be up to date: since the last good fetch was sent, or, while a
// server is watched, since the server was last heard (it sends something every 15 s). The age of a list from
// DiscoveryConfig.File includes the time it was on disk. Age is 0 until Ready.
func (d *Discovery) Age() time.Duration { return d.Status().Age }

// Sources of a list.
const (
	SourceNone  = "none" // there is no list yet
	SourceFile  = "file" // DiscoveryConfig.File
	SourceFetch = "fetch"
	SourceWatch = "watch"
)

// DiscoveryStatus is the current state of a Discovery.
type DiscoveryStatus struct {
	Source string        // of the list: one of the Sources
	Server string        // URL of the server that it came from; "" if none
	Index  string        // version of a Rollcall server's registry, as in X-Rollcall-Index; "" if not known
	Age    time.Duration // as returned by Age
	Held   int           // instances that the Guard keeps
	Err    error         // why the last refresh failed; nil if it succeeded
}

// Status returns its current state.
func (d *Discovery) Status() DiscoveryStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	status := d.status
	if !d.asOf.IsZero() {
		status.Age = max(0, time.Since(d.asOf)) // a file may come from a clock that was ahead
	}
	return status
}

// dated returns the list and when it was up to date, or nil before there is one.
func (d *Discovery) dated() (*Snapshot, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asOf.IsZero() {
		return nil, time.Time{}
	}
	return d.list.Load(), d.asOf
}

// OnChange calls each after every change of the list, with the list before and after it, in order, from one
// goroutine; changes in quick succession may be reported as one. each should return soon: until it has, it is not
// called again, but nothing else waits, not even other such functions. The first change reported is the first after
// OnChange. stop ends the calls without waiting for one in progress, so that each may call it; Close waits.
func (d *Discovery) OnChange(each func(old, new *Snapshot)) (stop func()) {
	s := &subscriber{each: each, wake: make(chan struct{}, 1), stopped: make(chan struct{})}
	ctx, quit := context.WithCancel(context.Background())
	s.quit = quit
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		quit()
		return func() {}
	}
	d.subscribers[s] = struct{}{}
	s.known = d.list.Load()
	go func() {
		s.run(ctx, d.list.Load)
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.subscribers, s) // until now Close waits for it
	}()
	return quit
}

// subscriber is a function that is called with changes, by a goroutine of its own.
type subscriber struct {
	each    func(old, new *Snapshot)
	known   *Snapshot     // list of the last call, or of OnChange; owned by the goroutine
	wake    chan struct{} // there may be a list newer than known
	quit    context.CancelFunc
	stopped chan struct{}
}

// run calls each with changes until ctx ends.
func (s *subscriber) run(ctx context.Context, list func() *Snapshot) {
	defer close(s.stopped)
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		if next := list(); next != s.known && ctx.Err() == nil {
			s.each(s.known, next)
			s.known = next
		}
	}
}

// wakeSubscribers has the subscribers compare the list with the one that they know. The caller holds mu.
func (d *Discovery) wakeSubscribers() {
	for s := range d.subscribers {
		select {
		case s.wake <- struct{}{}:
		default: // it is awake, and will compare
		}
	}
}

// Close ends the Discovery. Its list can still be read afterwards, and stays as it is. Close waits for what is in
// progress, including functions that are called with a change (which must not call Close), until ctx ends, which is
// the only error. It may be called more than once.
func (d *Discovery) Close(ctx context.Context) error {
	defer d.client.drop(d)
	return d.stop(ctx)
}

// stop implements part.
func (d *Discovery) stop(ctx context.Context) error {
	d.quit()
	d.mu.Lock()
	d.closed = true
	callers := slices.Collect(maps.Keys(d.subscribers)) // those that may still be called
	d.mu.Unlock()
	for _, s := range callers {
		s.quit()
	}
	if err := wait.Until(ctx, d.stopped, "wait for the discovery to end"); err != nil {
		return err
	}
	for _, s := range callers {
		if err := wait.Until(ctx, s.stopped, "wait for a function that was told of a change"); err != nil {
			return err
		}
	}
	return nil
}

// withdraw implements part. No server knows of a Discovery.
func (d *Discovery) withdraw(context.Context) error { return nil }

// gauges implements gauger.
func (d *Discovery) gauges(emit func(desc *prometheus.Desc, value float64, labels ...string)) {
	status := d.Status()
	emit(listAge, status.Age.Seconds(), d.app)
	emit(listInstances, float64(d.Snapshot().Len()), d.app)
	emit(listHeld, float64(status.Held), d.app)
}
