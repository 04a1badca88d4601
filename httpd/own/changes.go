package own

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// errForeign means that a position belongs to another history than this node's. Fetch everything.
var errForeign = errors.New("index of another history")

// maxRead bounds what a changeReader returns at once, in changes: it limits the memory that a watcher holds while it
// is sent to.
const maxRead = 2048

// changeReader reads the change list for one watcher. It has no queue of its own: unread changes stay in the change
// list, which holds each instance once, however far behind the watcher is.
type changeReader struct {
	service registry.Service
	which   registry.Selector
	at      position // everything selected up to here was returned
	more    bool     // the last read was cut off at maxRead
}

// next returns the next changes, oldest first, at most maxRead, and moves the reader past them. It waits for changes,
// but not longer than patience; an empty result means that nothing selected changed up to the reader's new position.
// Errors: registry.ErrTooOld, errForeign, registry.ErrClosed or ctx's.
func (f *changeReader) next(ctx context.Context, patience time.Duration) ([]registry.Change, error) {
	changes, err := f.read()
	if err != nil || len(changes) > 0 || patience == 0 {
		return changes, err
	}
	waiting, stop := context.WithTimeout(ctx, patience)
	defer stop()
	news, err := f.service.Changes(waiting, f.at.index, f.which)
	switch {
	case err == nil:
		return f.advance(news.View, news.Items)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return f.read()
	}
	return nil, err
}

// read is next without the wait.
func (f *changeReader) read() ([]registry.Change, error) {
	v := web.StaleView(f.service)
	if v == nil {
		return nil, registry.ErrClosed
	}
	if v.Epoch() != f.at.epoch {
		return nil, errForeign // its index means nothing here
	}
	changes, err := v.ChangesOf(f.at.index, f.which)
	if err != nil {
		return nil, err
	}
	return f.advance(v, changes)
}

// advance moves the reader past changes, which v contains.
func (f *changeReader) advance(v *registry.View, changes []registry.Change) ([]registry.Change, error) {
	if v.Epoch() != f.at.epoch {
		return nil, errForeign
	}
	if f.more = len(changes) > maxRead; f.more {
		changes = slices.Clone(changes[:maxRead]) // lets the rest be freed
		f.at.index = changes[maxRead-1].Index
		return changes, nil
	}
	f.at.index = max(f.at.index, v.Index())
	return changes, nil
}

// restart makes the reader go on from what this node has now, after everything was fetched.
func (f *changeReader) restart() error {
	v := web.StaleView(f.service)
	if v == nil {
		return registry.ErrClosed
	}
	f.at, f.more = positionOf(v), false
	return nil
}

// resetReason returns the metrics' word for the reason why a watcher must fetch everything, or "" for any other
// reason.
func resetReason(err error) string {
	switch {
	case errors.Is(err, registry.ErrTooOld):
		return "too_old"
	case errors.Is(err, errForeign):
		return "foreign"
	}
	return ""
}

// resetText explains each reason to a watcher.
var resetText = map[string]string{
	"too_old": "the index is too old: removals after it are forgotten; fetch everything and go on from this index",
	"foreign": "the index belongs to another history of the registry; fetch everything and go on from this index",
	"slow":    "you read too slowly; fetch everything and watch again",
}

// position is an index with the history that it belongs to: a watcher resumes by naming it.
type position struct {
	epoch string
	index registry.Index
}

func positionOf(v *registry.View) position { return position{v.Epoch(), v.Index()} }

// String returns the form on the wire, epoch-index, as in X-Rollcall-Index.
func (p position) String() string { return web.FormatIndex(p.epoch, p.index) }

// parsePosition is the inverse of String and accepts nothing else: an index has one spelling. It cuts the epoch off at
// the last dash, because an epoch may contain dashes itself.
func parsePosition(text string) (position, error) {
	dash := strings.LastIndexByte(text, '-')
	if dash < 0 || len(text) > order.MaxName || !order.PlainText(text) {
		return position{}, errPosition
	}
	number, err := strconv.ParseUint(text[dash+1:], 10, 64)
	if err != nil || strconv.FormatUint(number, 10) != text[dash+1:] {
		return position{}, errPosition
	}
	return position{epoch: text[:dash], index: registry.Index(number)}, nil
}

var errPosition = web.BadRequest("index must be one that an answer or an event gave: epoch-index, with the index in decimal")

// position parses a position given by a caller.
func (c call) position(text string) (p position) {
	if c.Err == nil {
		p, c.Err = parsePosition(text)
	}
	return p
}
