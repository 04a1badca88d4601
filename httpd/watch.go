package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// maxWait bounds a long poll.
const maxWait = 10 * time.Minute

// watchRequest is what a watcher asks for.
type watchRequest struct {
	which   registry.Selector
	from    position
	resumes bool                 // from was given
	read    registry.Consistency // of now, where it begins without from
	asked   bool                 // read was given
	wait    time.Duration
	polls   bool // wait was given: a long poll, not a stream
}

// watch is GET /v1/rollcall/watch: changes as they happen, as a stream of events or, with wait, as
// one answer. Every node serves it from its own change list; no node knows of another's watchers.
func (c *call) watch() (any, error) {
	ask := c.watchRequest()
	if c.err != nil {
		return nil, c.err
	}
	ctx, done, err := c.watches.begin(c.r)
	if err != nil {
		return nil, err
	}
	defer done()
	f, err := c.openFeed(ctx, ask)
	if err != nil {
		return nil, err
	}
	if ask.polls {
		return answered, c.longPoll(ctx, c.w, f, ask.wait)
	}
	return answered, c.stream(ctx, c.w, f)
}

// openFeed is the feed from where a watcher wants to begin: now, or the position that it names. A
// position that this node does not know may be newer than what it has applied, so it asks first.
func (h *Handler) openFeed(ctx context.Context, ask watchRequest) (*feed, error) {
	f := &feed{service: h.config.Service, which: ask.which, at: ask.from}
	v := staleView(h.config.Service)
	if ask.resumes && v != nil && v.Epoch() == ask.from.epoch && v.Index() >= ask.from.index {
		return f, nil
	}
	fresh, err := h.viewToWatch(ctx, ask)
	switch {
	case err != nil:
		return nil, err
	case !ask.resumes:
		f.at = positionOf(fresh.View)
	case fresh.Epoch() == ask.from.epoch && fresh.Index() < ask.from.index:
		return nil, badRequest(fmt.Sprintf("index %s has not happened yet; the registry is at %s", ask.from, positionOf(fresh.View)))
	}
	return f, nil // a foreign position is found by the first read
}

// viewToWatch is the view at which a watcher begins, or with which its position is compared.
func (h *Handler) viewToWatch(ctx context.Context, ask watchRequest) (freshView, error) {
	if ask.asked && !ask.resumes {
		return h.viewAt(ctx, ask.read)
	}
	return h.newest(ctx)
}

// watchRequest reads what a watcher asks for.
func (c *call) watchRequest() (ask watchRequest) {
	ask.which.App = strings.ToUpper(c.text("app"))
	ask.read, ask.asked = c.consistency()
	ask.wait, ask.polls = c.waiting()
	text, given := c.lookup("index")
	// A browser's EventSource resumes with the header and the query that it began with.
	if last := c.r.Header.Get("Last-Event-ID"); last != "" && !ask.polls {
		text, given = last, true
	}
	if ask.resumes = given; given {
		ask.from = c.position(text)
	}
	return ask
}

// waiting reads wait.
func (q *query) waiting() (wait time.Duration, given bool) {
	return q.duration("wait", 0, maxWait, fmt.Sprintf("wait must be a duration from 0s to %v, like 30s", maxWait))
}

// longPoll answers with the changes after the feed's position as soon as there are any, and with
// none when the time has passed or the node shuts down. It answers at most maxRead; the next poll
// gets the others at once.
func (h *Handler) longPoll(ctx context.Context, w http.ResponseWriter, f *feed, wait time.Duration) error {
	out := newWatchWriter(w, h.watches.pace)
	out.pause()
	defer out.end()
	changes, err := f.next(ctx, wait)
	if reason := lost(err); reason != "" {
		return h.gone(f, reason, err)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Rollcall-Index", f.at.String())
	out.begin()
	out.buf = append(eureka.AppendText(append(out.buf, `{"index":`...), f.at.String()), `,"changes":[`...)
	for i, c := range changes {
		if i > 0 {
			out.buf = append(out.buf, ',')
		}
		out.buf = appendChange(out.buf, f.at.epoch, c)
		if out.full() && out.flush() != nil {
			return nil // the client went away, or reads nothing
		}
	}
	out.buf = append(out.buf, "]}\n"...)
	if out.flush() == nil {
		h.watches.events.Add(float64(len(changes)))
	}
	return nil
}

// gone tells a watcher to fetch everything and from where to go on then.
func (h *Handler) gone(f *feed, reason string, cause error) error {
	if err := f.restart(); err != nil {
		return err
	}
	h.watches.resets.WithLabelValues(reason).Inc()
	return &refusal{status: http.StatusGone, text: lostText[reason], index: f.at.String(), cause: cause}
}

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
