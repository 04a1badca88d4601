// Package probe runs the HTTP, TCP, UDP, gRPC and HTTP/2 checks of services and nodes on the leader: it makes an
// attempt at each check's interval, and sets the check when the result changes its state. TTL checks are not run
// here; the state machine ends those. Results in a row are counted here and not in the state; the next leader counts
// anew.
//
// The addresses come from clients. A server that connected to every address would be the clients' way to its own
// machine and its cloud's metadata, so the rules check an address after it was resolved and before a connection is
// made.
//
// The rules follow Consul's agent (agent/checks/check.go).
//
//	prober.go     the Prober: its loop, its metrics, and one attempt with its consequences
//	leading.go    the checks of one leadership: which there are, and which may run
//	checks.go     one check: its times, the schedule, and how results in a row are counted
//	attempt.go    one attempt: the request, connection or datagram
//	http2.go      attempts over HTTP/2: the ping, and gRPC's health check
//	rules.go      which addresses and methods a check may use, by the settings
//	addresses.go  the addresses that no check may use, and the filter of every connection
package probe

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// Registry is what a Prober needs from registry.Service.
type Registry interface {
	Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error)
	View(ctx context.Context, read registry.Consistency) (*registry.View, error)
}

// Config is what a Prober needs. Registry and Watch are required.
type Config struct {
	World    *world.World // nil means the real machine
	Registry Registry
	// Watch starts a wait for a change of the registry, see registry.Watchers.Join.
	Watch func() (woken <-chan struct{}, leave func())
	Rules Rules
	// MayProbe reports whether a token, given its accessor ("" for a check without token), allows a check to probe an
	// address that is not its own, or to send a header beyond the settings, see Rules.Refuses. Nil allows all.
	MayProbe func(token, at string) bool
	Log      *slog.Logger          // nil discards
	Metrics  prometheus.Registerer // may be nil
}

// Prober runs the checks that have a Probe.
type Prober struct {
	cfg     Config
	metrics *metrics
	attempt func(context.Context, *catalog.Probe, location) result
	draw    func(time.Duration) time.Duration // returns a random duration below its argument
	failing atomic.Bool                       // the last result was not committed, which is logged already
}

// New returns a Prober, which does nothing before Run.
func New(cfg Config) *Prober {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MayProbe == nil {
		cfg.MayProbe = func(string, string) bool { return true }
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	return &Prober{
		cfg:     cfg,
		metrics: newMetrics(cfg.Metrics),
		attempt: newCaller(cfg.World, cfg.Rules, cfg.MayProbe).attempt,
		draw:    func(d time.Duration) time.Duration { return rand.N(d) },
	}
}

// Run probes until ctx ends, with the leadership, and returns when the last attempt has ended. epoch is the
// leadership's: an operation that is applied after the leadership has no effect.
func (p *Prober) Run(ctx context.Context, epoch registry.Epoch) {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	defer p.metrics.checks.Set(0)
	defer p.metrics.oldest.Store(nil)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &leading{p: p, epoch: epoch, checks: map[ref]*check{}, bySubject: map[subject][]ref{}, attempts: map[string]int{}, queued: map[string][]*check{}, finished: make(chan *check, atOnce)}
	refresh := time.NewTimer(0)
	defer refresh.Stop()
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
			refresh.Reset(refreshPause)
			woken = nil
		case <-refresh.C:
			leave()
			woken, leave = p.cfg.Watch()
			l.refresh(ctx)
		case c := <-l.finished:
			l.reschedule(c)
		case <-next.C:
		}
		l.start(ctx, &attempts)
		p.metrics.oldest.Store(l.oldest())
		pause := time.Hour // while no slot is free: the end of an attempt wakes Run
		if len(l.waiting) > 0 && l.running < atOnce {
			pause = max(time.Until(l.waiting[0].due), 0)
		}
		next.Reset(pause)
	}
}

type metrics struct {
	checks prometheus.Gauge
	oldest atomic.Pointer[time.Time] // see leading.oldest
	runs   *prometheus.CounterVec
	beyond prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	add := promauto.With(reg)
	m := &metrics{
		checks: add.NewGauge(prometheus.GaugeOpts{Name: "rollcall_probe_checks", Help: "Checks that this node probes; 0 unless it leads."}),
		runs: add.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_probe_runs_total",
			Help: "Probes that this node ran as leader, by kind (http, tcp, udp, grpc, h2ping) and result, before success and failure thresholds."}, []string{"kind", "result"}),
		beyond: add.NewCounter(prometheus.CounterOpts{Name: "rollcall_probe_would_refuse_total",
			Help: "Probes that this node ran as leader but will refuse from level 3 of the formats on, because their token does not allow the address or, for HTTP checks, the headers."}),
	}
	add.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_probe_queue_age_seconds",
		Help: "How long the longest-waiting check is overdue; near 0 unless many services hang."}, m.queueAge)
	return m
}

func (m *metrics) queueAge() float64 {
	oldest := m.oldest.Load()
	if oldest == nil {
		return 0
	}
	return max(time.Since(*oldest).Seconds(), 0)
}

var statusWords = [...]string{catalog.Passing: "passing", catalog.Warning: "warning", catalog.Critical: "critical"}

// run makes one attempt at a check, and sets the check if that changed its state.
func (p *Prober) run(ctx context.Context, c *check, epoch registry.Epoch) {
	limited, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	view, err := p.cfg.Registry.View(ctx, registry.Stale)
	if err != nil {
		return
	}
	at, beyond := c.location, atomic.Pointer[string]{}
	if at.from = view.ProbeSource(c.node, c.probe); view.CountsNewRights() {
		at.counted = func(why string) { beyond.Store(&why) }
	}
	found := p.attempt(limited, c.probe, at)
	if ctx.Err() != nil {
		return // the attempt was cut short: its result says nothing about the service
	}
	kind, _ := target(c.probe)
	p.metrics.runs.WithLabelValues(kind, statusWords[found.status]).Inc()
	if why := beyond.Load(); why != nil {
		p.metrics.beyond.Inc()
		c.warn.Do(func() {
			p.cfg.Log.Warn("a check will be refused from level 3 of the formats on", "of", c.node, "check", c.id, "why", *why)
		})
	}
	if view, err = p.cfg.Registry.View(ctx, registry.Stale); err != nil {
		return
	}
	present, ok := view.CheckOn(c.node, c.id)
	if !ok || !reflect.DeepEqual(present.Probe, c.probe) {
		return // the check was replaced: the attempt says nothing about the new one
	}
	status, decided := c.tally.count(c.probe, present, found.status)
	found.status = status
	if now := time.Now(); decided && c.tally.mustSet(present, found, now) && p.setCheck(ctx, c.ref, found, epoch) {
		c.tally.setAt = now
	}
}

// setCheck sets a check, and reports whether that was committed. If not, the next attempt reaches the same result.
func (p *Prober) setCheck(ctx context.Context, c ref, r result, epoch registry.Epoch) bool {
	_, err := p.cfg.Registry.Apply(ctx, registry.FromClient, registry.SetCheck{
		Node: c.node, Check: c.id, Status: r.status, Output: r.output, Epoch: epoch,
	})
	if err != nil && ctx.Err() == nil && !p.failing.Swap(true) {
		p.cfg.Log.Warn("the result of a check was not committed", "of", c.node, "check", c.id, "err", err)
	}
	if err == nil {
		p.failing.Store(false)
	}
	return err == nil
}
