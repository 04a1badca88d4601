package dashboard

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// How often a page's stream looks and speaks.
const (
	liveEvery = 200 * time.Millisecond // looks for changes
	// The same for a caller who may read only some applications: each look goes through all of them.
	liveEveryOfSome = time.Second
	liveTick        = 5 * time.Second // speaks, changed or not: leases run down, and a proxy that buffers is detected
)

// mark summarizes what a page depends on: a page is rebuilt when its mark changes.
type mark struct {
	epoch    string
	index    registry.Index
	apps     int    // readable by a caller who may not read all
	held     uint64 // of locks and keys
	state    registry.Preservation
	led      bool
	ready    bool
	suspends bool
}

// markOf returns the current mark, for an application, or for all that the caller may read if app is empty. held
// includes locks and keys.
func (c call) markOf(app string, held bool) mark {
	health := c.Service.Health()
	m := mark{led: health.Quorum, ready: health.Ready, suspends: health.Suspended}
	if v := web.StaleView(c.Service); v != nil {
		m.epoch, m.index, m.state = v.Epoch(), v.Index(), v.Preservation()
		switch {
		case app != "":
			m.index = 0
			if a, there := v.App(app); there {
				m.index = a.Changed
			}
		case !c.mayRead(""):
			m.index = 0
			for a := range v.Apps() {
				if c.mayRead(a.Name) {
					m.index, m.apps = max(m.index, a.Changed), m.apps+1
				}
			}
		}
	}
	if c.Coordination == nil || !held || !c.May(heldNeeds(c.Call)...) {
		return m
	}
	if k, err := c.Coordination.View(c.R.Context(), registry.Stale); err == nil {
		m.held = uint64(k.Index())
	}
	return m
}

// live is GET /ui/live: a stream that says when a page must be rebuilt. It carries no content: the page is fetched,
// with the rights that its reader has then. wait ends it after a time.
func (c call) live() (any, error) {
	app, held := strings.ToUpper(c.Text("app")), c.Text("held") != ""
	wait, bounded := c.Duration("wait", 0, time.Hour, "wait must be a duration from 0s to 1h, like 30s")
	if c.Err != nil {
		return nil, c.Err
	}
	if app != "" {
		if err := c.Allow(access.Need{Resource: access.App, Name: app, Verb: access.Read}); err != nil {
			return nil, err
		}
	}
	ctx, done, err := c.Hold()
	if err != nil {
		return nil, err
	}
	defer done()
	header := c.W.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // otherwise nginx holds responses back
	ctx, end := c.WhileItLasts(ctx, c.R)
	defer end()
	if bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	out := web.NewStreamWriter(c.W, c.Watches.Pace)
	defer out.Finish()
	c.speak(ctx, out, app, held)
	return web.Sent, nil // too late for another response: this one has begun
}

// speak reports changes, with their number since the last report, and otherwise every liveTick that nothing has
// changed. For one application, and to a caller who may not read all of them, it always reports one: an index counts
// changes of others, too.
func (c call) speak(ctx context.Context, out *web.StreamWriter, app string, held bool) {
	all, every := c.mayRead(""), liveEvery
	if !all {
		every = liveEveryOfSome
	}
	look := time.NewTicker(every)
	defer look.Stop()
	was, said := c.markOf(app, held), time.Time{}
	for {
		is := c.markOf(app, held)
		if changed := is != was; changed || time.Since(said) >= liveTick {
			changes := uint64(is.index-was.index) + is.held - was.held
			if (!all || app != "") && changed || is.epoch != was.epoch || is.index < was.index || is.held < was.held {
				changes = 1
			}
			event := "tick"
			if changed {
				event = "change"
			}
			out.TakeBuffer()
			out.Buf = append(out.Buf, fmt.Sprintf("event: %s\ndata: %s\n\n", event, strconv.FormatUint(changes, 10))...)
			if out.Flush() != nil || out.Slow {
				return
			}
			out.Pause()
			was, said = is, time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}
