package httpd

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
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
func (h *Handler) watch(w http.ResponseWriter, r *http.Request) error {
	ask, err := readWatch(r)
	if err != nil {
		return err
	}
	ctx, done, err := h.watches.begin(r)
	if err != nil {
		return err
	}
	defer done()
	f, err := h.openFeed(ctx, ask)
	if err != nil {
		return err
	}
	if ask.polls {
		return h.longPoll(ctx, w, f, ask.wait)
	}
	return h.stream(ctx, w, f)
}

func readWatch(r *http.Request) (ask watchRequest, err error) {
	app, _, err := param(r.URL.RawQuery, "app")
	if err != nil {
		return ask, err
	}
	ask.which.App = strings.ToUpper(app)
	if ask.read, ask.asked, err = consistencyParam(r.URL.RawQuery); err != nil {
		return ask, err
	}
	if ask.wait, ask.polls, err = waitParam(r.URL.RawQuery); err != nil {
		return ask, err
	}
	text, given, err := param(r.URL.RawQuery, "index")
	if err != nil {
		return ask, err
	}
	// A browser's EventSource resumes with the header and the query that it began with.
	if last := r.Header.Get("Last-Event-ID"); last != "" && !ask.polls {
		text, given = last, true
	}
	if ask.resumes = given; given {
		ask.from, err = parsePosition(text)
	}
	return ask, err
}

// waitParam reads wait; ok is false if it is not given.
func waitParam(query string) (wait time.Duration, ok bool, err error) {
	text, ok, err := param(query, "wait")
	if err != nil || !ok {
		return 0, false, err
	}
	wait, err = time.ParseDuration(text)
	if err != nil || wait < 0 || wait > maxWait {
		return 0, false, badRequest(fmt.Sprintf("wait must be a duration from 0s to %v, like 30s", maxWait))
	}
	return wait, true, nil
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
