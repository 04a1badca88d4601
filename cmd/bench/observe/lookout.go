package observe

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// Pauses between two looks for one registration.
const (
	shortestLook = 4 * time.Millisecond
	// lookShare makes the pause grow with the time that the registration has been looked for: its delay is known to so
	// much of itself, and what nobody will see for seconds is not asked for hundreds of times.
	lookShare = 6
	// lookLoad is the most of its time that a lookout spends with the reading of documents.
	lookLoad = 5
)

// glance is a way of looking.
type glance struct {
	way  trial.Way
	path func(id string) string
	// together: the document shows all registrations that are looked for.
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
	arrived  chan struct{} // something was taken since

	mu      sync.Mutex
	waiting []*lookedFor
}

// lookedFor is a registration that this lookout has not seen yet.
type lookedFor struct {
	*sighting
	due  time.Time // of the next look
	gone bool      // nobody looks any more
}

func newLookout(o *Observer, node int, g glance) *lookout {
	return &lookout{observer: o, node: node, glance: g, asker: o.asker(node), arrived: make(chan struct{}, 1)}
}

// take begins to look for a registration that was acknowledged just now.
func (l *lookout) take(g *sighting) {
	l.mu.Lock()
	l.waiting = append(l.waiting, &lookedFor{sighting: g, due: g.acked})
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
			l.look(ctx, batch)
			continue
		}
		l.idle(ctx, pause)
	}
}

// batch is what is to be looked for now, or else how long the pause until then is; -1: until something arrives.
func (l *lookout) batch(now time.Time) (batch []*lookedFor, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(w *lookedFor) bool { return w.gone })
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

// look looks for a batch: with one question for all, or with one for each.
func (l *lookout) look(ctx context.Context, batch []*lookedFor) {
	if l.glance.together {
		l.ask(ctx, batch)
		return
	}
	for i := range batch {
		l.ask(ctx, batch[i:i+1])
	}
}

// ask puts one question. What a look saw was there when the answer was made; the moment of the question counts, for an
// answer that takes its time to be right is late, but not stale.
func (l *lookout) ask(ctx context.Context, batch []*lookedFor) {
	begun := time.Now()
	answer, err := l.asker.find(ctx, l.glance.path(batch[0].id))
	if ctx.Err() != nil {
		return
	}
	now, least := time.Now(), shortestLook
	if err == nil {
		least = max(least, (lookLoad-1)*now.Sub(answer.begun))
	}
	for _, w := range batch {
		if err == nil && shows(answer.body, w.id) {
			l.observer.sighted(w.sighting, l.node, l.glance.way, begun)
			w.leave()
			continue
		}
		l.again(w, now, least)
	}
}

// shows reports whether a document is about the instance. Ids are unique, so a quoted one stands for nothing else.
func shows(document []byte, id string) bool { return bytes.Contains(document, []byte(`"`+id+`"`)) }

// again makes the next look due, unless there were enough.
func (l *lookout) again(w *lookedFor, now time.Time, least time.Duration) {
	age := now.Sub(w.acked)
	if age > sightLimit {
		l.observer.unseen(w.sighting, l.node, l.glance.way)
		w.leave()
		return
	}
	w.due = now.Add(max(least, age/lookShare))
}

// leave ends the search of one lookout.
func (w *lookedFor) leave() {
	w.gone = true
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
}

// giveUp ends the search for everything.
func (l *lookout) giveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiting {
		if !w.gone {
			l.observer.unseen(w.sighting, l.node, l.glance.way)
		}
	}
}
