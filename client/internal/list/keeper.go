package list

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// Config is what a Keeper needs.
type Config struct {
	Cluster  *transport.Cluster
	Log      *slog.Logger
	Metrics  *Metrics
	App      string // one application, upper case; "" means all
	Watch    bool   // watch the list if the server can be watched
	Deltas   bool   // after the first fetch, fetch deltas if the server has them
	Interval time.Duration
	Guard    Guard
	File     string // "" if the list is not kept on disk
	// Publish is called with every list that differs from the one before, by one goroutine. It must return at once,
	// and not call the Keeper.
	Publish func(*List)
}

// Source is where a list came from.
type Source uint8

// Sources of a list.
const (
	None Source = iota // there is no list yet
	File               // Config.File
	Fetch
	Watch
)

// Status is the current state of a Keeper. It has the fields of client.DiscoveryStatus.
type Status struct {
	Source Source
	Server string
	Index  string
	Age    time.Duration
	Held   int
	Err    error
}

// Keeper keeps a list of instances up to date. Safe for concurrent use.
type Keeper struct {
	config Config
	list   atomic.Pointer[List]
	ready  chan struct{} // closed when there is a list

	mu     sync.Mutex
	status Status    // without Age
	asOf   time.Time // when the list was known to be up to date; zero before the first list
}

// NewKeeper returns a Keeper, which does nothing until Run.
func NewKeeper(config Config) *Keeper {
	k := &Keeper{config: config, ready: make(chan struct{})}
	k.list.Store(new(List))
	return k
}

// Run keeps the list, and its file, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	r := newRefresher(k)
	if k.config.File == "" {
		r.run(ctx)
		return
	}
	r.file = &saver{
		keeper: k, disk: lastKnown{path: k.config.File}, wake: make(chan struct{}, 1),
		outage: wait.Outage{Log: k.config.Log},
	}
	switch list, asOf, err := r.file.disk.load(k.config.App); {
	case err == nil:
		r.file.saved, r.file.asOf = list, asOf
		r.publish(list)
		r.recordSource(File, "", asOf)
	case !errors.Is(err, fs.ErrNotExist):
		k.config.Log.Warn("the list of instances on disk cannot be used, starting without one", "app", k.config.App, "err", err)
	}
	saving, done := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() { r.file.run(saving) })
	r.run(ctx)
	done()
	g.Wait()
}

// Ready is closed when there is a list.
func (k *Keeper) Ready() <-chan struct{} { return k.ready }

// Status returns the Keeper's current state.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	status := k.status
	if !k.asOf.IsZero() {
		status.Age = max(0, time.Since(k.asOf)) // a file may come from a clock that was ahead
	}
	return status
}

// dated returns the list and when it was up to date, or nil before there is one.
func (k *Keeper) dated() (*List, time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asOf.IsZero() {
		return nil, time.Time{}
	}
	return k.list.Load(), k.asOf
}

// Metrics has the numbers of all lists of one client.
type Metrics struct {
	Refreshes *prometheus.CounterVec // by kind (full, delta, watch) and outcome (ok, failed, mismatch)
	Guarded   prometheus.Counter     // full responses that the guard did not believe
}

// NewMetrics shows possible events as 0: a counter that first appears with 1 has no rate for that event.
func NewMetrics() *Metrics {
	m := &Metrics{
		Refreshes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_client_refreshes_total", Help: "Refreshes of the list of instances, by kind and outcome.",
		}, []string{"kind", "outcome"}),
		Guarded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_client_guarded_lists_total", Help: "Full answers that lacked too many instances to be taken at their word.",
		}),
	}
	for _, kind := range []string{"full", "delta", "watch"} {
		m.Refreshes.WithLabelValues(kind, "ok")
		m.Refreshes.WithLabelValues(kind, "failed")
	}
	m.Refreshes.WithLabelValues("delta", "mismatch")
	return m
}

// Collectors returns the metrics, for a registerer.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.Refreshes, m.Guarded}
}
