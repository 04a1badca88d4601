package httpd

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// watches are the watches under way on a node, as event streams and as long polls.
type watches struct {
	limit   int64
	pace    pace
	life    context.Context // done when the node shuts down
	end     context.CancelFunc
	running atomic.Int64
	events  prometheus.Counter
	resets  *prometheus.CounterVec
}

// pace is how watchers are sent to.
type pace struct {
	gap   time.Duration // at least so much between two sends to one watcher: what changes meanwhile goes together
	quiet time.Duration // after so long without an event a stream is told where it is
	slow  time.Duration // a write that takes longer marks a reader as too slow
	cut   time.Duration // a write that takes longer cuts the reader off
}

var defaultPace = pace{gap: 50 * time.Millisecond, quiet: 15 * time.Second, slow: 5 * time.Second, cut: 30 * time.Second}

func newWatches(limit int, reg prometheus.Registerer) *watches {
	w := &watches{limit: int64(limit), pace: defaultPace}
	w.life, w.end = context.WithCancel(context.Background())
	w.events = newCounters(reg, "rollcall_http_watch_events_total", "Changes sent to watchers, in event streams and answers of long polls.").WithLabelValues()
	w.resets = newCounters(reg, "rollcall_http_watch_resets_total", "Watchers told to fetch everything, by reason; cut ones read nothing and were cut off.", "reason")
	for _, reason := range []string{"too_old", "foreign", "slow", "cut"} {
		w.resets.WithLabelValues(reason)
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_http_watchers", Help: "Watches under way, long polls included."},
		func() float64 { return float64(w.running.Load()) }))
	return w
}

// begin takes a place for a watcher. ctx is the request's, and ends at shutdown too; done gives the
// place back.
func (w *watches) begin(r *http.Request) (ctx context.Context, done func(), err error) {
	if w.life.Err() != nil {
		return nil, nil, fmt.Errorf("watch: %w", registry.ErrClosed)
	}
	if w.running.Add(1) > w.limit {
		w.running.Add(-1)
		text := fmt.Sprintf("this node has %d watchers already (limits.watchers); ask another node", w.limit)
		return nil, nil, &refusal{status: http.StatusServiceUnavailable, text: text, retry: true}
	}
	ctx, cancel := context.WithCancel(r.Context())
	detach := context.AfterFunc(w.life, cancel)
	return ctx, func() {
		detach()
		cancel()
		w.running.Add(-1)
	}, nil
}

// EndWatches ends all watches and refuses new ones: http.Server.Shutdown would wait for them. Serve
// calls it at shutdown; where Serve is not used, register it with http.Server.RegisterOnShutdown.
func (h *Handler) EndWatches() { h.watches.end() }
