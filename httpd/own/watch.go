package own

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// maxWait bounds a long poll.
const maxWait = 10 * time.Minute

// watchRequest holds the parameters of a watch.
type watchRequest struct {
	which     registry.Selector
	from      position
	resumes   bool                 // from was given
	read      registry.Consistency // freshness of the starting point without from
	readGiven bool                 // read was given
	wait      time.Duration
	polls     bool // wait was given: this is a long poll, not a stream
}

// watch is GET /v1/rollcall/watch: changes as they happen, as a stream of events or, with wait, as one response. Every
// node serves it from its own change list; no node knows of another's watchers.
func (c call) watch() (any, error) {
	ask := c.watchRequest()
	if c.Err != nil {
		return nil, c.Err
	}
	ctx, done, err := c.Hold()
	if err != nil {
		return nil, err
	}
	defer done()
	f, err := c.openReader(ctx, ask)
	if err = cmp.Or(web.EndedBy(ctx), err); err != nil {
		return nil, err
	}
	if ask.polls {
		return web.Sent, c.longPoll(ctx, c.W, f, ask.wait)
	}
	ctx, end := c.WhileItLasts(ctx, c.R)
	defer end()
	return web.Sent, c.stream(ctx, c.W, f)
}

// openReader returns a reader from where a watcher wants to begin: now, or the position that it names. A position
// unknown to this node may be newer than what it has applied, so it asks first.
func (o *Own) openReader(ctx context.Context, ask watchRequest) (*changeReader, error) {
	f := &changeReader{service: o.Service, which: ask.which, at: ask.from}
	v := web.StaleView(o.Service)
	if ask.resumes && v != nil && v.Epoch() == ask.from.epoch && v.Index() >= ask.from.index {
		return f, nil
	}
	read := o.Newest
	if ask.readGiven && !ask.resumes {
		read = func(ctx context.Context) (web.FreshView, error) { return o.ViewAt(ctx, ask.read) }
	}
	fresh, err := read(ctx)
	switch {
	case err != nil:
		return nil, err
	case !ask.resumes:
		f.at = positionOf(fresh.View)
	case fresh.Epoch() == ask.from.epoch && fresh.Index() < ask.from.index:
		return nil, web.BadRequest(fmt.Sprintf("index %s has not happened yet; the registry is at %s", ask.from, positionOf(fresh.View)))
	}
	return f, nil // the first read finds a foreign position
}

// watchRequest reads the parameters of a watch.
func (c call) watchRequest() (ask watchRequest) {
	ask.which.App = strings.ToUpper(c.Text("app"))
	ask.read, ask.readGiven = c.Consistency()
	ask.wait, ask.polls = c.waiting()
	text, given := c.Lookup("index")
	// A browser's EventSource resumes with the header and the query that it began with.
	if last := c.R.Header.Get("Last-Event-ID"); last != "" && !ask.polls {
		text, given = last, true
	}
	if ask.resumes = given; given {
		ask.from = c.position(text)
	}
	return ask
}

// waiting reads wait.
func (c call) waiting() (wait time.Duration, given bool) {
	return c.Duration("wait", 0, maxWait, fmt.Sprintf("wait must be a duration from 0s to %v, like 30s", maxWait))
}

// longPoll responds with the changes after the reader's position as soon as there are any, or with an empty list when
// the time has passed or the node shuts down. It sends at most maxRead; the next poll gets the others at once.
func (o *Own) longPoll(ctx context.Context, w http.ResponseWriter, f *changeReader, wait time.Duration) error {
	out := web.NewStreamWriter(w, o.Watches.Pace)
	out.Pause()
	defer out.Finish()
	changes, err := f.next(ctx, wait)
	if reason := resetReason(err); reason != "" {
		return o.refuseLost(f, reason, err)
	}
	if refused := web.EndedBy(ctx); refused != nil {
		return refused
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Rollcall-Index", f.at.String())
	out.TakeBuffer()
	out.Buf = append(eureka.AppendQuoted(append(out.Buf, `{"index":`...), f.at.String()), `,"changes":[`...)
	for i, c := range changes {
		if i > 0 {
			out.Buf = append(out.Buf, ',')
		}
		out.Buf = append(out.Buf, o.texts.of(f.at.epoch, c)...)
		if out.Full() && out.Flush() != nil {
			return nil // the client went away, or stopped reading
		}
	}
	out.Buf = append(out.Buf, "]}\n"...)
	if out.Flush() == nil {
		o.events.Add(float64(len(changes)))
	}
	return nil
}

// refuseLost tells a watcher to fetch everything and where to resume then.
func (o *Own) refuseLost(f *changeReader, reason string, cause error) error {
	if err := f.restart(); err != nil {
		return err
	}
	o.resets.WithLabelValues(reason).Inc()
	return &web.Refusal{Status: http.StatusGone, Text: resetText[reason], Index: f.at.String(), Cause: cause}
}
