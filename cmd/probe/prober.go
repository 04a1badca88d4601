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
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
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
	attempt func(context.Context, *catalog.Probe, own) result
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

var statusWords = [...]string{catalog.Passing: "passing", catalog.Warning: "warning", catalog.Critical: "critical"}

func (m *metrics) count(p *catalog.Probe, found catalog.CheckStatus) {
	kind := "tcp"
	if p.HTTP != "" {
		kind = "http"
	}
	m.runs.WithLabelValues(kind, statusWords[found]).Inc()
}

// run makes one attempt at a check, and tells the registry if that changed its state.
func (p *Prober) run(ctx context.Context, c *check, epoch registry.Epoch) {
	limited, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	found := p.attempt(limited, c.probe, c.own)
	if ctx.Err() != nil {
		return // the attempt was ended, and says nothing of the service
	}
	p.metrics.count(c.probe, found.status)
	view, err := p.cfg.Registry.View(ctx, registry.Stale)
	if err != nil {
		return
	}
	present, ok := view.CheckOn(c.node, c.id)
	if !ok {
		return
	}
	status, settled := c.tally.judge(c.probe, present.Status, found.status)
	found.status = status
	if now := time.Now(); settled && c.tally.news(present, found, now) && p.tell(ctx, c.ref, found, epoch) {
		c.tally.told = now
	}
}

// tell has the registry set a check. If that fails the next attempt comes to the same result.
func (p *Prober) tell(ctx context.Context, c ref, r result, epoch registry.Epoch) bool {
	_, err := p.cfg.Registry.Apply(ctx, registry.FromClient, registry.SetCheck{
		Node: c.node, Check: c.id, Status: r.status, Output: r.output, Epoch: epoch,
	})
	if err != nil && ctx.Err() == nil && !p.failing.Swap(true) {
		p.cfg.Log.Warn("the result of a check was not committed", "node", c.node, "check", c.id, "err", err)
	}
	if err == nil {
		p.failing.Store(false)
	}
	return err == nil
}
