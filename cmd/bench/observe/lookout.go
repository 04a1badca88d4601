package observe

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// Pauses between two looks for one registration.
const (
	shortestLook = 4 * time.Millisecond
	// lookShare makes the pause grow with the time that the registration has been looked for: the delay is known to
	// within this share of itself, and a registration that stays unseen for seconds is not asked for hundreds of times.
	lookShare = 6
	// lookLoad bounds the share of its time that a lookout spends reading documents: one in lookLoad.
	lookLoad = 5
)

// glance is a way of looking.
type glance struct {
	way  trial.Way
	path func(id string) string
	// together: one document shows all registrations that are searched for.
	together bool
}

var (
	byRead      = glance{way: trial.ByRead, path: instancePath}
	byStaleRead = glance{way: trial.ByStale, path: stalePath}
	byList      = glance{way: trial.ByList, path: func(string) string { return registryPath + "/" + sightApp }, together: true}
	byDelta     = glance{way: trial.ByDelta, path: func(string) string { return registryPath + "/delta" }, together: true}
)

func instancePath(id string) string { return registryPath + "/" + sightApp + "/" + id }

func stalePath(id string) string { return instancePath(id) + "?consistency=stale" }

// lookout looks for registrations at one node in one way, one look at a time.
type lookout struct {
	observer *Observer
	node     int
	glance   glance
	asker    *asker
	arrived  chan struct{} // has an element if a search was added since the last look

	mu      sync.Mutex
	waiting []*search
}

// search is a lookout's search for one registration.
type search struct {
	*sighting
	due      time.Time // of the next look
	finished bool      // seen, or given up
}

func newLookout(o *Observer, node int, g glance) *lookout {
	return &lookout{observer: o, node: node, glance: g, asker: o.asker(node), arrived: make(chan struct{}, 1)}
}

// add begins the search for a registration that was acknowledged just now.
func (l *lookout) add(g *sighting) {
	l.mu.Lock()
	l.waiting = append(l.waiting, &search{sighting: g, due: g.acked})
	l.mu.Unlock()
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}

// run looks until ctx ends.
func (l *lookout) run(ctx context.Context) {
	defer l.giveUp()
	for ctx.Err() == nil {
		batch, pause := l.batch(time.Now())
		if len(batch) > 0 {
			l.askAll(ctx, batch)
			continue
		}
		l.idle(ctx, pause)
	}
}

// batch is what to search for now, or if there is nothing, the pause until then; -1: until a search is added.
func (l *lookout) batch(now time.Time) (batch []*search, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(w *search) bool { return w.finished })
	pause = -1
	for _, w := range l.waiting {
		left := w.due.Sub(now)
		if left <= 0 {
			batch = append(batch, w)
		} else if pause < 0 || left < pause {
			pause = left
		}
	}
	if len(batch) > 0 && l.glance.together {
		batch = slices.Clone(l.waiting)
	}
	return batch, pause
}

func (l *lookout) idle(ctx context.Context, pause time.Duration) {
	var due <-chan time.Time
	if pause >= 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
	case <-l.arrived:
	case <-due:
	}
}

// askAll searches for a batch: with one question for all, or with one for each.
func (l *lookout) askAll(ctx context.Context, batch []*search) {
	if l.glance.together {
		l.ask(ctx, batch)
		return
	}
	for i := range batch {
		l.ask(ctx, batch[i:i+1])
	}
}

// ask asks one question, but a lost node none. A registration counts as seen when the response that shows it has come: before that no client
// knows of it.
func (l *lookout) ask(ctx context.Context, batch []*search) {
	if l.observer.isDropped(l.node) {
		for _, w := range batch {
			w.finish()
		}
		return
	}
	resp, err := l.asker.find(ctx, l.glance.path(batch[0].id))
	if ctx.Err() != nil {
		return
	}
	now, least := time.Now(), shortestLook
	if err == nil {
		least = max(least, (lookLoad-1)*now.Sub(resp.firstByte))
	}
	for _, w := range batch {
		if err == nil && shows(resp.body, w.id) {
			l.observer.sighted(w.sighting, l.node, l.glance.way, now)
			w.finish()
			continue
		}
		l.again(w, now, least)
	}
}

// shows reports whether a document is about the instance. Ids are unique, so a quoted id stands for nothing else.
func shows(document []byte, id string) bool { return bytes.Contains(document, []byte(`"`+id+`"`)) }

// again makes the next look due, unless the search has lasted for sightLimit.
func (l *lookout) again(w *search, now time.Time, least time.Duration) {
	age := now.Sub(w.acked)
	if age > l.observer.sightLimit() {
		l.observer.unseen(w.sighting, l.node, l.glance.way)
		w.finish()
		return
	}
	pause := max(least, age/lookShare)
	if l.glance.together && l.observer.config.Column.System == scenario.Eureka {
		pause = cachedLook
	}
	w.due = now.Add(pause)
}

// finish ends the search of one lookout.
func (w *search) finish() {
	w.finished = true
	if w.searches.Add(-1) == 0 {
		close(w.done)
	}
}

// giveUp ends all searches.
func (l *lookout) giveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiting {
		if !w.finished {
			l.observer.unseen(w.sighting, l.node, l.glance.way)
		}
	}
}
