package web

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Watches are the watches under way on a node, as event streams and as long polls.
type Watches struct {
	limit   atomic.Int64
	Pace    Pace
	life    context.Context // done when the node shuts down
	stop    context.CancelFunc
	running atomic.Int64
}

// Pace is how fast watchers are sent to, and how fast they must read.
type Pace struct {
	Gap   time.Duration // at least so much between two sends to one watcher: what changes meanwhile goes together
	Quiet time.Duration // after so long without an event a stream says where it is
	Slow  time.Duration // a write that takes longer marks a reader as too slow
	Cut   time.Duration // a write that takes longer cuts the reader off
}

var defaultPace = Pace{Gap: 50 * time.Millisecond, Quiet: 15 * time.Second, Slow: 5 * time.Second, Cut: 30 * time.Second}

func newWatches(reg prometheus.Registerer) *Watches {
	w := &Watches{Pace: defaultPace}
	w.life, w.stop = context.WithCancel(context.Background())
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_http_watchers", Help: "Watches under way, long polls included."},
		func() float64 { return float64(w.running.Load()) }))
	return w
}

// EndAll ends all watches and refuses new ones.
func (w *Watches) EndAll() { w.stop() }

// admit takes one of the places of watchers. ctx is the request's, and ends at shutdown or by end, too; done gives the
// place back.
func (w *Watches) admit(r *http.Request) (ctx context.Context, end context.CancelCauseFunc, done func(), err error) {
	if w.life.Err() != nil {
		return nil, nil, nil, fmt.Errorf("watch: %w", registry.ErrClosed)
	}
	if limit := w.limit.Load(); w.running.Add(1) > limit {
		w.running.Add(-1)
		text := fmt.Sprintf("this node has %d watchers already (limits.watchers); ask another node", limit)
		return nil, nil, nil, &Refusal{Status: http.StatusServiceUnavailable, Text: text, Retry: true}
	}
	ctx, end = context.WithCancelCause(r.Context())
	detach := context.AfterFunc(w.life, func() { end(nil) })
	return ctx, end, func() {
		detach()
		end(nil)
		w.running.Add(-1)
	}, nil
}
