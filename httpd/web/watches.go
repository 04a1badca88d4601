package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
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
	pages   atomic.Int64 // streams of the dashboard's pages, which have their own places

	mu   sync.Mutex
	held map[*http.Request]time.Time // the requests of the watches, and since when
}

// Watcher is a program that watches an application.
type Watcher struct {
	Agent, From string // its name for itself, and its address
	Since       time.Time
}

// Of returns the programs that watch one application, longest first. Pages of the dashboard do not count.
func (w *Watches) Of(app string) (all []Watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r, since := range w.held {
		if !IsPage(r.URL.Path) && strings.EqualFold(watchedApp(r), app) {
			all = append(all, Watcher{r.UserAgent(), r.RemoteAddr, since})
		}
	}
	slices.SortFunc(all, func(a, b Watcher) int { return a.Since.Compare(b.Since) })
	return all
}

// watchedApp returns the application that a watch names, by a parameter of our own API or in a path of Consul's.
func watchedApp(r *http.Request) string {
	for _, path := range []string{"/v1/health/service/", "/v1/catalog/service/"} {
		if name, is := strings.CutPrefix(r.URL.Path, path); is {
			return name
		}
	}
	app, _, _ := param(r.URL.RawQuery, "app")
	return app
}

// Pace is how fast watchers are sent to, and how fast they must read.
type Pace struct {
	Gap   time.Duration // shortest time between two sends to one watcher: changes in between are sent together
	Quiet time.Duration // after this time without an event a stream sends its position
	Slow  time.Duration // a write that takes longer marks a reader as too slow
	Cut   time.Duration // a write that takes longer cuts the reader off
}

func newWatches(reg prometheus.Registerer) *Watches {
	pace := Pace{Gap: 50 * time.Millisecond, Quiet: 15 * time.Second, Slow: 5 * time.Second, Cut: 30 * time.Second}
	w := &Watches{Pace: pace, held: make(map[*http.Request]time.Time)}
	w.life, w.stop = context.WithCancel(context.Background())
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_http_watchers", Help: "Open watches, long polls included, dashboard streams excluded."},
		func() float64 { return float64(w.running.Load()) }))
	return w
}

// EndAll ends all watches and refuses new ones.
func (w *Watches) EndAll() { w.stop() }

// pagesShare is the divisor of limits.watchers for streams of pages, whose places come on top of those of programs: a
// tenth, and at least one.
const pagesShare = 10

// admit takes one of the places of watchers, or of pages. ctx is the request's, and also ends at shutdown or by end;
// done gives the place back.
func (w *Watches) admit(r *http.Request) (ctx context.Context, end context.CancelCauseFunc, done func(), err error) {
	if w.life.Err() != nil {
		return nil, nil, nil, fmt.Errorf("watch: %w", registry.ErrClosed)
	}
	running, limit, whose := &w.running, w.limit.Load(), "watchers already (limits.watchers)"
	if IsPage(r.URL.Path) {
		running, limit, whose = &w.pages, max(limit/pagesShare, 1), "open pages already that follow changes (a tenth of limits.watchers)"
	}
	if running.Add(1) > limit {
		running.Add(-1)
		text := fmt.Sprintf("this node has %d %s; ask another node", limit, whose)
		return nil, nil, nil, &Refusal{Status: http.StatusServiceUnavailable, Text: text, Retry: true}
	}
	ctx, end = context.WithCancelCause(r.Context())
	detach := context.AfterFunc(w.life, func() { end(nil) })
	w.mu.Lock()
	w.held[r] = time.Now()
	w.mu.Unlock()
	return ctx, end, func() {
		w.mu.Lock()
		delete(w.held, r)
		w.mu.Unlock()
		detach()
		end(nil)
		running.Add(-1)
	}, nil
}
