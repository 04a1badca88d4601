package probe

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const (
	// atOnce is how many attempts run at a time: services that hang cost their time-out each.
	atOnce = 100
	// minInterval is the shortest interval, as in Consul's agent.
	minInterval = time.Second
	// defaultTimeout is the time-out of a probe that has none.
	defaultTimeout = 10 * time.Second
	// lookPause is the shortest time between two looks at the registry, which may change by the thousand.
	lookPause = 100 * time.Millisecond
)

// Registry is what a Prober needs of registry.Service.
type Registry interface {
	Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error)
	View(ctx context.Context, read registry.Consistency) (*registry.View, error)
}

// Config is what a Prober needs. Registry and Watch are required.
type Config struct {
	Registry Registry
	// Watch begins to wait for a change of the registry, see registry.Watchers.Join.
	Watch func() (woken <-chan struct{}, leave func())
	// AllowLoopback: checks may name addresses of the machine that this node runs on.
	AllowLoopback bool
	Log           *slog.Logger          // nil: discards
	Metrics       prometheus.Registerer // nil: none
}

// Prober runs the checks that have a Probe.
type Prober struct {
	cfg     Config
	metrics *metrics
	attempt func(context.Context, *registry.Probe) result
	draw    func(time.Duration) time.Duration // at random, below its argument
	failing atomic.Bool                       // the registry was not told of the last result, and that was logged
}

// New makes a Prober; Run makes it work.
func New(cfg Config) *Prober {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	return &Prober{
		cfg:     cfg,
		metrics: newMetrics(cfg.Metrics),
		attempt: newCaller(guard{loopback: cfg.AllowLoopback}).attempt,
		draw:    func(d time.Duration) time.Duration { return rand.N(d) },
	}
}

// leading is the work of one leadership. It belongs to Run's goroutine.
type leading struct {
	p       *Prober
	epoch   registry.Epoch
	seen    registry.Index  // of the view that was looked at last
	nodes   registry.Index  // its CatalogIndex
	checks  map[ref]*check  // all that are probed
	owned   map[owner][]ref // and of what
	waiting schedule        // those of which no attempt runs
	running int             // attempts
	ended   chan *check     // an attempt of it has; never full
}

// Run probes until ctx ends, which is when the node leads no longer, and returns when the last attempt has
// ended. epoch is the leadership: what the registry is told after it has no effect.
func (p *Prober) Run(ctx context.Context, epoch registry.Epoch) {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	defer p.metrics.checks.Set(0)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &leading{p: p, epoch: epoch, checks: map[ref]*check{}, owned: map[owner][]ref{}, ended: make(chan *check, atOnce)}
	look := time.NewTimer(0)
	defer look.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	var woken <-chan struct{}
	leave := func() {}
	defer func() { leave() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-woken:
			look.Reset(lookPause)
			woken = nil
		case <-look.C:
			leave()
			woken, leave = p.cfg.Watch()
			l.look(ctx)
		case c := <-l.ended:
			l.again(c)
		case <-next.C:
		}
		l.start(ctx, &attempts)
		next.Reset(l.pause())
	}
}

func (l *leading) look(ctx context.Context) {
	if view, err := l.p.cfg.Registry.View(ctx, registry.Stale); err == nil { // the leader's own state is the newest
		l.update(view)
	}
}

// start runs what is due.
func (l *leading) start(ctx context.Context, attempts *sync.WaitGroup) {
	for l.running < atOnce {
		c, ok := l.waiting.due(time.Now())
		if !ok {
			return
		}
		l.running++
		c.due = time.Now().Add(c.interval())
		running, stop := context.WithCancel(ctx)
		c.stop = stop
		attempts.Go(func() {
			defer func() { l.ended <- c }()
			l.p.run(running, c, l.epoch)
		})
	}
}

// again makes a check wait for its next time, once its attempt has ended.
func (l *leading) again(c *check) {
	l.running--
	c.stop()
	c.stop = nil
	if !c.dropped {
		l.waiting.add(c)
	}
}

// pause is the time until something is due. While no further attempt may run that is not asked.
func (l *leading) pause() time.Duration {
	if len(l.waiting) == 0 || l.running == atOnce {
		return time.Hour
	}
	return max(time.Until(l.waiting[0].due), 0)
}
