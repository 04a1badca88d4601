// Package probe runs the HTTP and TCP checks of services and nodes, on the node that leads: it asks at each
// check's interval, and tells the registry when the answer changes its state. What is counted is told
// here (how many equal results change a state); whoever leads next counts anew.
//
// The addresses come from clients. A server that asked whatever it is told to ask would be their way to
// its own machine and its cloud's metadata, so what an address resolves to is judged before a connection
// is made (attempt.go).
//
// The rules are those of Consul's agent (agent/checks/check.go).
package probe

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const (
	// atOnce is how many attempts run at a time: services that hang cost their time-out each.
	atOnce = 100
	// perService is how many of them may be those of one service (or node), so that one whose checks all
	// hang does not keep the others from being looked at.
	perService = 10
	// minInterval is the shortest interval, as in Consul's agent.
	minInterval = time.Second
	// defaultTimeout is the time-out of a probe that has none.
	defaultTimeout = 10 * time.Second
	// maxTimeout is the longest time-out: an attempt keeps its place for so long.
	maxTimeout = 30 * time.Second
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
	Watch   func() (woken <-chan struct{}, leave func())
	Rules   Rules
	Log     *slog.Logger          // nil: discards
	Metrics prometheus.Registerer // nil: none
}

// Prober runs the checks that have a Probe.
type Prober struct {
	cfg     Config
	metrics *metrics
	attempt func(context.Context, *registry.Probe, own) result
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
		attempt: newCaller(cfg.Rules).attempt,
		draw:    func(d time.Duration) time.Duration { return rand.N(d) },
	}
}

// leading is the work of one leadership. It belongs to Run's goroutine.
type leading struct {
	p       *Prober
	epoch   registry.Epoch
	seen    registry.Index      // of the view that was looked at last
	nodes   registry.Index      // its CatalogIndex
	checks  map[ref]*check      // all that are probed
	owned   map[owner][]ref     // and of what
	waiting schedule            // those of which no attempt runs
	running int                 // attempts
	of      map[string]int      // them by service
	held    map[string][]*check // those that are due and wait for a place of their service
	ended   chan *check         // an attempt of it has; never full
}

// Run probes until ctx ends, which is when the node leads no longer, and returns when the last attempt has
// ended. epoch is the leadership: what the registry is told after it has no effect.
func (p *Prober) Run(ctx context.Context, epoch registry.Epoch) {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	defer p.metrics.checks.Set(0)
	defer p.metrics.oldest.Store(0)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &leading{p: p, epoch: epoch, checks: map[ref]*check{}, owned: map[owner][]ref{}, of: map[string]int{}, held: map[string][]*check{}, ended: make(chan *check, atOnce)}
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
		p.metrics.oldest.Store(l.oldest())
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
		service := c.owner.service()
		if l.of[service] == perService {
			l.held[service] = append(l.held[service], c)
			c.held = service
			continue
		}
		l.running++
		l.of[service]++
		c.runs = service
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
	if l.of[c.runs]--; l.of[c.runs] == 0 {
		delete(l.of, c.runs)
	}
	if held := l.held[c.runs]; len(held) > 0 {
		first := held[0]
		l.unhold(first)
		l.waiting.add(first) // it was due before what is due now
	}
}

// unhold takes out a check that waits for a place of its service.
func (l *leading) unhold(c *check) {
	held := slices.DeleteFunc(l.held[c.held], func(other *check) bool { return other == c })
	if l.held[c.held] = held; len(held) == 0 {
		delete(l.held, c.held)
	}
	c.held = ""
}

// oldest is when the check was or will be due that has waited longest, in ns of Unix time; 0: none waits.
func (l *leading) oldest() int64 {
	var oldest time.Time
	consider := func(c *check) {
		if oldest.IsZero() || c.due.Before(oldest) {
			oldest = c.due
		}
	}
	if len(l.waiting) > 0 {
		consider(l.waiting[0])
	}
	for _, held := range l.held {
		consider(held[0])
	}
	if oldest.IsZero() {
		return 0
	}
	return oldest.UnixNano()
}

// pause is the time until something is due. While no further attempt may run that is not asked.
func (l *leading) pause() time.Duration {
	if len(l.waiting) == 0 || l.running == atOnce {
		return time.Hour
	}
	return max(time.Until(l.waiting[0].due), 0)
}

// metrics are the figures of a Prober.
type metrics struct {
	checks prometheus.Gauge
	oldest atomic.Int64 // see leading.oldest
	runs   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	add := promauto.With(reg)
	m := &metrics{
		checks: add.NewGauge(prometheus.GaugeOpts{Name: "rollcall_probe_checks", Help: "Checks that this node probes; 0 unless it leads."}),
		runs: add.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_probe_runs_total",
			Help: "Probes that this node ran as leader, by kind (http, tcp) and what they found, before anything was counted."}, []string{"kind", "result"}),
	}
	add.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_probe_queue_age_seconds",
		Help: "How long the check that has waited longest for a free place is overdue; near 0 unless many services hang."}, m.queueAge)
	return m
}

func (m *metrics) queueAge() float64 {
	oldest := m.oldest.Load()
	if oldest == 0 {
		return 0
	}
	return max(time.Since(time.Unix(0, oldest)).Seconds(), 0)
}

var statusWords = [...]string{registry.Passing: "passing", registry.Warning: "warning", registry.Critical: "critical"}

func (m *metrics) count(p *registry.Probe, found registry.CheckStatus) {
	kind := "tcp"
	if p.HTTP != "" {
		kind = "http"
	}
	m.runs.WithLabelValues(kind, statusWords[found]).Inc()
}
